"""The file system: the few operations that the sink needs, with errors that it understands.

Keeps true:  `rename` never replaces a file, and a rename that did not happen is an error: the library tells neither.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from felice.pipelines.connect.connectors.hdfs.options import url_of
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, RetriableError, one_line
from felice.pipelines.web_hdfs import web_hdfs


class Storage:
    """HDFS by WebHDFS, or a local file system. Paths are below the URL's. Every method raises `RetriableError`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Asks for nothing yet. Raises `ConnectError` if the library is not installed."""
        url = url_of(options)
        parts = urlsplit(url)
        self._root = unquote(parts.path).rstrip("/")
        try:
            if parts.scheme == "file":
                from fsspec.implementations.local import LocalFileSystem

                self._system: Any = LocalFileSystem()
            else:
                self._system = web_hdfs(url)
        except ModuleNotFoundError as error:
            raise ConnectError(
                f"{error.name} is not installed: pip install 'felice[connect-hdfs]'"
            ) from error
        except ValueError:
            raise ConfigError(
                f"Invalid value {url} for configuration store.url: its port is no number"
            ) from None

    def write(self, path: str, content: IO[bytes] | bytes) -> None:
        """Writes a new file, and makes its directory."""
        with _failures(f"{path} cannot be written"):
            self._system.makedirs(self._full(path.rpartition("/")[0]), exist_ok=True)
            with self._system.open(self._full(path), "wb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    content.seek(0)
                    shutil.copyfileobj(content, file, 1 << 20)

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        with _failures(f"{path} cannot be read"):
            data: bytes = self._system.cat_file(self._full(path))
            return data

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        with _failures(f"{path} cannot be looked up"):
            try:
                self._system.info(self._full(path))
            except FileNotFoundError:
                return False
            return True

    def names(self, directory: str) -> list[str]:
        """The names in a directory, in order; none if it is not there."""
        with _failures(f"{directory} cannot be listed"):
            try:
                found = self._system.ls(self._full(directory), detail=False)
            except FileNotFoundError:
                return []
            return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def files_below(self, directory: str) -> Iterator[str]:
        """The names of all files below a directory."""
        with _failures(f"{directory} cannot be listed"):
            for path in self._system.find(self._full(directory)):
                yield path.rpartition("/")[2]

    def rename(self, path: str, to: str) -> None:
        """Moves a file to a name that is free, and makes its directory."""
        with _failures(f"{path} cannot be renamed to {to}"):
            self._system.makedirs(self._full(to.rpartition("/")[0]), exist_ok=True)
            if not self.exists(to):
                self._system.mv(self._full(path), self._full(to))
        if self.exists(path) or not self.exists(to):
            raise RetriableError(f"{path} was not renamed to {to}")

    def delete(self, path: str) -> None:
        """Deletes a file or a directory with all that it holds, if it is there."""
        with _failures(f"{path} cannot be deleted"):
            if self.exists(path):
                self._system.rm(self._full(path), recursive=True)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path.lstrip('/')}"


@contextmanager
def _failures(what: str) -> Iterator[None]:
    try:
        yield
    except ConnectError:
        raise
    except (PermissionError, ValueError) as error:
        raise ConnectError(f"{what}: {one_line(error)}") from error
    except (
        OSError,
        RuntimeError,
    ) as error:  # of the network too; RuntimeError is a NameNode's other refusals
        raise RetriableError(f"{what}: {one_line(error)}") from error

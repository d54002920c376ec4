"""Where the files of state are: a directory that all workers share, an object store, or HDFS.

Keeps true: a file is complete or absent. A reader that reads it during a `put` gets the old bytes, the new bytes, or
            `FileNotFoundError`.
How:        In a directory a file is written beside, synced and renamed. An object store makes an object visible when
            all of it has arrived. With `file://` and in HDFS the file is written under a temporary name, an existing
            file is removed, and the new file is renamed. Only a batch or a piece that is written again replaces a file,
            and nobody else reads that file then.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from felice.pipelines.streams.on_spark.directory import CheckpointError, below, is_address, sync_directory
from felice.pipelines.web_hdfs import PORTS as HDFS
from felice.pipelines.web_hdfs import web_hdfs

if TYPE_CHECKING:
    from pyarrow import fs

SCHEMES = ("s3", "file", *HDFS)
"""The schemes that are tested. Other schemes of Arrow are refused."""
_OBJECT_STORES = ("s3",)
_IN_MEMORY = 64 * 1024 * 1024
"""A file for an object store that is larger than this is put together on disk."""
_PIECE = 8 * 1024 * 1024


class PlaceError(Exception):
    """A place that cannot be reached. The text names it and the reason."""


class Place(Protocol):
    """A directory of files and of other directories."""

    def where(self, name: str) -> str:
        """A file's path or address, for errors."""

    def child(self, name: str) -> Place:
        """A directory in this one. It need not exist."""

    def put(self, name: str, mark: str, write: Callable[[BinaryIO], object]) -> None:
        """Make or replace a file. `write` may seek. `mark` is part of the name of what an attempt leaves behind."""

    def read(self, name: str, size: int | None = None) -> bytes:
        """The first bytes of a file, or all of them. Raises `FileNotFoundError`."""

    def names(self) -> dict[str, int]:
        """The files and their sizes in bytes, with those that attempts have left: `.NAME.MARK`."""

    def children(self) -> list[str]:
        """The names of the directories."""

    def remove(self, name: str) -> None:
        """Remove a file. It need not exist."""

    def remove_all(self) -> None:
        """Remove the directory and all that is in it. It need not exist."""


class LocalPlace:
    """A directory on this machine, or one that the machines share."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def where(self, name: str) -> str:
        """The path."""
        return str(self._path / name)

    def child(self, name: str) -> LocalPlace:
        """A directory in this one."""
        return LocalPlace(self._path / name)

    def put(self, name: str, mark: str, write: Callable[[BinaryIO], object]) -> None:
        """Write beside, sync and rename."""
        self._make_directory()
        aside = self._path / f".{name}.{mark}"
        with aside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path / name)
        sync_directory(self._path)

    def read(self, name: str, size: int | None = None) -> bytes:
        """The bytes of a file."""
        if size is None:
            return (self._path / name).read_bytes()
        with (self._path / name).open("rb") as file:
            return file.read(size)

    def names(self) -> dict[str, int]:
        """The files and their sizes."""
        found = {}
        for path in self._path.glob("*"):
            try:
                if path.is_file():
                    found[path.name] = path.stat().st_size
            except FileNotFoundError:
                continue  # Another worker has removed it meanwhile.
        return found

    def children(self) -> list[str]:
        """The directories."""
        return [path.name for path in self._path.glob("*") if path.is_dir()]

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._path / name).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _make_directory(self) -> None:
        if self._path.exists():
            return
        self._path.mkdir(parents=True, exist_ok=True)
        # The directories of this task's part and of the state may be new, too.
        for path in (self._path.parent, self._path.parent.parent):
            sync_directory(path)


class RemotePlace:
    """A directory of a file system that Arrow knows."""

    def __init__(self, system: fs.FileSystem, path: str, location: str) -> None:
        self._system, self._path, self._location = system, path, location

    def where(self, name: str) -> str:
        """The address."""
        address = self._location.partition("?")[0]
        return below(address, name) if name else address

    def child(self, name: str) -> RemotePlace:
        """A directory in this one."""
        return RemotePlace(self._system, f"{self._path}/{name}", below(self._location, name))

    def put(self, name: str, mark: str, write: Callable[[BinaryIO], object]) -> None:
        """Put the file together here, and send it."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file, _told(self.where(name)):
            write(file)  # type: ignore[arg-type]
            file.seek(0)
            if self._system.type_name in _OBJECT_STORES:
                self._send(file, f"{self._path}/{name}")
                return
            aside, target = f"{self._path}/.{name}.{mark}", f"{self._path}/{name}"
            self._system.create_dir(self._path, recursive=True)
            self._send(file, aside)
            self.remove(name)
            self._system.move(aside, target)

    def _send(self, file: Any, path: str) -> None:
        with self._system.open_output_stream(path) as out:
            while piece := file.read(_PIECE):
                out.write(piece)

    def read(self, name: str, size: int | None = None) -> bytes:
        """The bytes of a file."""
        with _told(self.where(name)), self._system.open_input_file(f"{self._path}/{name}") as file:
            return bytes(file.read() if size is None else file.read(size))

    def names(self) -> dict[str, int]:
        """The files and their sizes."""
        return {one.base_name: one.size for one in self._listed() if one.is_file}

    def children(self) -> list[str]:
        """The directories."""
        return [one.base_name for one in self._listed() if not one.is_file]

    def remove(self, name: str) -> None:
        """Remove a file."""
        with _told(self.where(name)):
            try:
                self._system.delete_file(f"{self._path}/{name}")
            except FileNotFoundError:
                return

    def remove_all(self) -> None:
        """Remove the directory."""
        with _told(self.where("")):
            try:
                self._system.delete_dir(self._path)
            except FileNotFoundError:
                return

    def _listed(self) -> list[Any]:
        from pyarrow import fs

        with _told(self.where("")):
            found: list[Any] = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
            return found


class HdfsPlace:
    """A directory in HDFS, over HTTP. fsspec is called directly: through Arrow's wrapper, an HDFS that does not answer
    looks like an empty directory.
    """

    def __init__(self, system: Any, path: str, location: str) -> None:
        self._system, self._path, self._location = system, path, location

    def where(self, name: str) -> str:
        """The address."""
        return below(self._location, name) if name else self._location

    def child(self, name: str) -> HdfsPlace:
        """A directory in this one."""
        return HdfsPlace(self._system, f"{self._path}/{name}", below(self._location, name))

    def put(self, name: str, mark: str, write: Callable[[BinaryIO], object]) -> None:
        """Put the file together here, send it under another name, and rename it."""
        aside, target = f"{self._path}/.{name}.{mark}", f"{self._path}/{name}"
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file, _told(self.where(name)):
            write(file)  # type: ignore[arg-type]
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            self._system.makedirs(self._path, exist_ok=True)
            with self._system.open(aside, "wb") as out:
                shutil.copyfileobj(file, out, _PIECE)
            self._system.rm(target)
            self._system.mv(aside, target)
            if self._system.info(target)["size"] != size:
                raise OSError("it was not renamed")  # HDFS answers no to a rename without an error.

    def read(self, name: str, size: int | None = None) -> bytes:
        """The bytes of a file."""
        with _told(self.where(name)):
            data: bytes = self._system.cat_file(f"{self._path}/{name}", 0, size)
            return data

    def names(self) -> dict[str, int]:
        """The files and their sizes."""
        return {_last(one): one["size"] for one in self._listed() if one["type"] == "file"}

    def children(self) -> list[str]:
        """The directories."""
        return [_last(one) for one in self._listed() if one["type"] == "directory"]

    def remove(self, name: str) -> None:
        """Remove a file."""
        with _told(self.where(name)):
            self._system.rm(f"{self._path}/{name}")

    def remove_all(self) -> None:
        """Remove the directory."""
        with _told(self.where("")):
            self._system.rm(self._path, recursive=True)

    def _listed(self) -> list[dict[str, Any]]:
        with _told(self.where("")):
            try:
                found: list[dict[str, Any]] = self._system.ls(self._path, detail=True)
            except FileNotFoundError:
                return []
            return found


def _last(found: dict[str, Any]) -> str:
    return str(found["name"]).rstrip("/").rpartition("/")[2]


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PlaceError(f"{where} cannot be read or written: {error}") from error


def place_at(location: str) -> Place:
    """The place with this path, or with this address, such as `s3://bucket/path`. Raises `CheckpointError`."""
    if not is_address(location):
        return LocalPlace(Path(location))
    if location.partition("://")[0] not in SCHEMES:
        raise CheckpointError(
            f"state cannot be kept at {location}: use s3://BUCKET/PATH, webhdfs://HOST:PORT/PATH, file:///PATH or a "
            "directory"
        )
    parts = urlsplit(location)
    if parts.scheme != "file" and not parts.hostname:
        raise CheckpointError(f"{location} names no {'bucket' if parts.scheme == 's3' else 'host'}")
    is_hdfs = parts.scheme in HDFS  # It asks for the user's name alone.
    if parts.password is not None or (parts.username is not None and not is_hdfs):
        instead = (
            "the password out" if is_hdfs else "it out, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
        raise CheckpointError(
            f"the address of the state holds a login, which the checkpoint would store: leave {instead}"
        )
    if is_hdfs:
        return HdfsPlace(_hdfs_at(location), unquote(parts.path).rstrip("/"), location)
    system, path = _system_at(location)
    return RemotePlace(system, path, location)


@lru_cache(maxsize=16)
def _system_at(location: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import ArrowException, fs

    try:
        system, path = fs.FileSystem.from_uri(location)
    except (OSError, ValueError, ArrowException) as error:
        raise CheckpointError(f"state cannot be kept at {location}: {error}") from None
    return system, path.rstrip("/")


def _hdfs_at(location: str) -> Any:
    """As the user of the address or of HADOOP_USER_NAME, as Hadoop's own clients."""
    try:
        return web_hdfs(location, os.environ.get("HADOOP_USER_NAME"))
    except ModuleNotFoundError as error:
        raise CheckpointError(f"{error.name} is not installed: pip install 'felice[connect-hdfs]'") from error
    except ValueError:
        raise CheckpointError(f"state cannot be kept at {location}: its port is no number") from None

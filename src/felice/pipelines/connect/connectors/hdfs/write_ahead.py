"""The log of a partition of a topic: which files are about to get their names, and where its task reads on.

Keeps true:  the log is written before the first file gets its name. The task that opens the partition next gives the
             remaining files their names, and reads on after them: all files of a commit are there, or none.
             A log has its name only when it is whole. The newest one holds; it stays until there is a newer one.
             Only the task that opened the partition last commits: another one finds that its mark is gone.
How:         `<logs.dir>/<topic>/<partition>` has `log.<next offset>` files and the mark of the owner. A partition
             without a log, as one that Confluent's sink wrote, goes on after the last record that its files name.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.hdfs.storage import Storage
from felice.pipelines.connect.model.errors import ConnectError

_log = logging.getLogger("felice.connect.hdfs")

Renames = Sequence[tuple[str, str]]
"""The temporary paths of files, and their own."""


class Journal:
    """The log of one partition."""

    def __init__(self, storage: Storage, options: Mapping[str, Any], at: TopicPartition) -> None:
        self._storage = storage
        topic, number = self._at = at
        self._directory = f"{options['logs.dir']}/{topic}/{number}"
        self._topic_directory = f"{options['topics.dir']}/{topic}"
        self.temporary = f"{options['topics.dir']}/+tmp/{topic}/{number}"
        """The directory of files that have no name yet."""
        delimiter = re.escape(options["file.delim"])
        self._names = re.compile(
            rf"{re.escape(topic)}{delimiter}{number}{delimiter}(\d+){delimiter}(\d+)(?:\..*)?"
        )
        self._mark = f"{self._directory}/owner.{uuid.uuid4().hex}"
        self._pending: Renames | None = None

    def open(self) -> int | None:
        """Takes the partition over, and ends what the task before began. The offset to read on at, or None."""
        self._storage.write(self._mark, b"")
        for name in self._storage.names(self._directory):
            if name.startswith("owner.") and not self._mark.endswith(name):
                self._storage.delete(f"{self._directory}/{name}")
        newest = self._newest()
        if newest is None:
            offset = self._after_files()
        else:
            offset, renames = newest
            self._finish(renames)
        self._storage.delete(self.temporary)
        return offset

    def commit(self, renames: Renames, offset: int) -> None:
        """Gives files their names, all or none. Call it again with other temporary files after a `RetriableError`."""
        if self._pending is None:
            if not self._storage.exists(self._mark):
                raise ConnectError(f"another task has taken over the files of {self._at[0]}-{self._at[1]}")
            self._write(renames, offset)
            self._pending = renames
        self._finish(self._pending)
        self._pending = None
        for name in self._logs():
            if name != _log_name(offset):
                self._storage.delete(f"{self._directory}/{name}")

    @property
    def is_pending(self) -> bool:
        """Whether a log is written whose files have not all got their names."""
        return self._pending is not None

    def restart(self, offset: int) -> None:
        """Lets the next task read on at an offset that a person chose."""
        for name in self._logs():
            self._storage.delete(f"{self._directory}/{name}")
        self._write((), offset)

    def close(self) -> None:
        """Gives the partition up."""
        self._storage.delete(self._mark)

    def _write(self, renames: Renames, offset: int) -> None:
        content = json.dumps({"next": offset, "renames": [list(one) for one in renames]}).encode()
        path = f"{self._directory}/{_log_name(offset)}"
        temporary = f"{self._directory}/tmp.{uuid.uuid4().hex}"
        self._storage.write(temporary, content)
        self._storage.delete(path)  # of an attempt whose rename was not confirmed
        self._storage.rename(temporary, path)

    def _finish(self, renames: Renames) -> None:
        for temporary, path in renames:
            if self._storage.exists(path):
                self._storage.delete(temporary)
            elif self._storage.exists(temporary):
                self._storage.rename(temporary, path)
            else:
                raise ConnectError(
                    f"the log of {self._at[0]}-{self._at[1]} names the file {path}, which is not there"
                )

    def _logs(self) -> list[str]:
        return [name for name in self._storage.names(self._directory) if name.startswith("log.")]

    def _newest(self) -> tuple[int, Renames] | None:
        names = self._logs()
        if not names:
            return None
        path = f"{self._directory}/{names[-1]}"
        try:
            content = json.loads(self._storage.read(path))
            return int(content["next"]), [
                (str(temporary), str(name)) for temporary, name in content["renames"]
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ConnectError(f"the log {path} cannot be read: {error}") from None

    def _after_files(self) -> int | None:
        """The offset after the last record that the names of files have."""
        ends = [
            int(one[2])
            for name in self._storage.files_below(self._topic_directory)
            if (one := self._names.fullmatch(name))
        ]
        return max(ends) + 1 if ends else None


def _log_name(offset: int) -> str:
    return f"log.{offset:020d}"

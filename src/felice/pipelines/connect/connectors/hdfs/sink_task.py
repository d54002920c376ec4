"""The task of the sink: writes temporary files, and gives them their names with a log written ahead.

Keeps true:  each record is in exactly one file. A task reads on at the offset in its log, not at that of its group.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.hdfs.options import OPTIONS
from felice.pipelines.connect.connectors.hdfs.storage import Storage
from felice.pipelines.connect.connectors.hdfs.write_ahead import Journal
from felice.pipelines.connect.connectors.objects.files_task import FilesSinkTask, OpenFile
from felice.pipelines.connect.model.errors import RetriableError


class HdfsSinkTask(FilesSinkTask):
    """Writes files."""

    definitions: ClassVar = OPTIONS

    def start(self, config: Mapping[str, str]) -> None:
        """As `FilesSinkTask.start`."""
        super().start(config)
        self._storage = Storage(self._options)
        self._journals: dict[TopicPartition, Journal] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Ends what tasks before have begun, and reads on after their files. Raises `ConnectError`."""
        super().open(partitions)
        offsets = {}
        for at in partitions:
            journal = self._journals[at] = Journal(self._storage, self._options, at)
            offset = journal.open()
            if offset is not None:
                offsets[at] = offset
        if offsets:
            self.context.seek(offsets)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Gives the open files up: another task makes them again."""
        super().close(partitions)
        for at in partitions:
            journal = self._journals.pop(at, None)
            if journal is not None:
                with suppress(RetriableError):  # else the next task takes the mark away
                    journal.close()

    def _publish(self, at: TopicPartition, files: Sequence[OpenFile]) -> None:
        journal = self._journals[at]
        renames = []
        for one in files:
            path = f"{self._directory(at, one.folder)}/{self._file_name(at, one, one.start, one.end)}"
            temporary = f"{journal.temporary}/{uuid.uuid4().hex}_tmp{one.file.extension}"
            if not journal.is_pending:
                self._storage.write(temporary, one.file.finish())
            renames.append((temporary, path))
        journal.commit(renames, max(one.end for one in files) + 1)

"""The task of the sink of objects: writes files of records to a bucket.

Keeps true:  an object is there whole or not at all. Its name depends on the records alone: what a crash
             repeats replaces the same objects by the same bytes, so that each record is there once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.objects.files_task import FilesSinkTask, OpenFile
from felice.pipelines.connect.connectors.objects.options import OPTIONS
from felice.pipelines.connect.model.errors import ConnectError, RetriableError

_log = logging.getLogger("felice.connect.objects")


class S3SinkTask(FilesSinkTask):
    """Writes objects."""

    definitions: ClassVar = OPTIONS

    def start(self, config: Mapping[str, str]) -> None:
        """As `FilesSinkTask.start`."""
        super().start(config)
        self._store = _store(self._options)

    @property
    def _delimiter(self) -> str:
        return str(self._options["directory.delim"])

    def _publish(self, at: TopicPartition, files: Sequence[OpenFile]) -> None:
        for one in files:
            name = self._delimiter.join(
                (self._directory(at, one.folder), self._file_name(at, one, one.start))
            )
            try:
                obstore.put(self._store, name, one.file.finish(), chunk_size=self._options["s3.part.size"])
            except (BaseError, OSError) as error:
                raise RetriableError(f"the object {name} cannot be written: {error}") from error
            _log.debug("the object %s is written", name)


def _store(options: Mapping[str, Any]) -> S3Store:
    given: dict[str, Any] = {"region": options["s3.region"]}
    if (url := options["store.url"]) is not None:
        given |= {"endpoint": url, "virtual_hosted_style_request": False}
    if options["aws.access.key.id"] is not None:
        given["access_key_id"] = options["aws.access.key.id"]
    if options["aws.secret.access.key"] is not None:
        given["secret_access_key"] = options["aws.secret.access.key"].value
    retries: Any = {"max_retries": options["s3.part.retries"]}
    client: Any = {"allow_http": bool(url and url.startswith("http://"))}
    try:
        return S3Store(options["s3.bucket.name"], client_options=client, retry_config=retries, **given)
    except (BaseError, ValueError, TypeError) as error:
        raise ConnectError(f"the bucket {options['s3.bucket.name']} cannot be used: {error}") from None

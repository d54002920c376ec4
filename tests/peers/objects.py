"""A store of objects with S3's API on this machine: moto."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import obstore
from obstore.store import S3Store

from peers.apache_kafka import free_port

START_S = 60.0
BUCKET = "records"


class Bucket:
    """A bucket of the running store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.options = {
            "s3.bucket.name": BUCKET,
            "store.url": url,
            "aws.access.key.id": "test",
            "aws.secret.access.key": "test",
        }
        self._store = S3Store(
            BUCKET,
            endpoint=url,
            access_key_id="test",
            secret_access_key="test",
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )

    def names(self) -> list[str]:
        """The names of all objects."""
        return sorted(one["path"] for page in obstore.list(self._store) for one in page)

    def objects(self) -> dict[str, bytes]:
        """All objects by their names."""
        return {name: bytes(obstore.get(self._store, name).bytes()) for name in self.names()}


@contextmanager
def running_store(port: int = 0) -> Iterator[Bucket]:
    port = port or free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        give_up_at = time.monotonic() + START_S
        while True:
            request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
            try:
                urllib.request.urlopen(request, timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < give_up_at, "moto did not start"
                time.sleep(0.1)
        yield Bucket(url)
    finally:
        process.kill()
        process.wait()

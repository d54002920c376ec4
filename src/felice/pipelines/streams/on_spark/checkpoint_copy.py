"""A copy of a checkpoint in HDFS or an object store, from which another machine continues.

Keeps true: before a task of a batch runs, the copy has the batch's offsets. So the machine that continues from the copy
            runs the same batch again, and the brokers know whether it was committed.
            The copy is one file, and a new one is written before older ones are removed: it is always that of one
            moment. A start replaces the files of the directory by those of the copy.
How:        The copy has the description, and of Spark's logs the last two batches; they are all that a start needs. The
            state is not in it: it is at an address of its own. `lease` lets one machine at a time continue.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from felice.dataclass import dataclass
from felice.pipelines.streams.on_spark.directory import (
    NAME,
    Checkpoint,
    CheckpointError,
    Description,
    address_of,
    numbers_in,
    write_aside,
    write_durably,
)
from felice.pipelines.streams.on_spark.lease import SUFFIX, valid_epoch
from felice.pipelines.streams.on_spark.places import Place, place_at

FORMAT = 1
_LOGS = "offsets", "commits"
_LAST = 2
_DESCRIPTION = f"{NAME}/application.json", f"{NAME}/starting.json"
_REMOVED_EVERY = 10

Number = tuple[int, int]
"""The epoch of a holder of the lease, and the number of a copy that it has written."""


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """The copy of an application's checkpoint in `directory`, at `address`."""

    directory: Path
    address: str
    application: str

    def push(self, epoch: int) -> None:
        """Replace the copy by what the directory holds, if that is something else. Raises `PlaceError`.

        The caller holds the lease in this epoch.
        """
        files = {str(path.relative_to(self.directory)): path.read_text() for path in self._files()}
        written = {"format": FORMAT, "application": self.application, "files": files}
        data = json.dumps(written).encode()
        digest = hashlib.sha256(data).hexdigest()
        last, pushed = self._last()
        if last[0] == epoch and digest == pushed:
            return
        place = place_at(self.address)
        number = (epoch, last[1] + 1 if last[0] == epoch else 0)
        place.put(_name(number), secrets.token_hex(4), lambda file: file.write(data))
        self._note(number, digest)
        if number[1] % _REMOVED_EVERY == 0:
            for older in _numbers(place)[:-1]:
                place.remove(_name(older))

    def pull(self) -> bool:
        """Replace the directory by the copy, and return True; without a copy leave it, and return False.

        Raises `CheckpointError` if the copy is damaged, gone, or of another application or release of Felice.
        """
        if (newest := self._newest()) is None:
            if self._noted.exists():
                raise CheckpointError(
                    f"{self.address} has no copy of {self.directory} any more; to begin again, remove the directory"
                )
            return False
        number, data = newest
        files = self._files_in(number, data)
        for name in (*_LOGS, "sources", "metadata", *_DESCRIPTION):
            _remove(self.directory / name)
        for path, text in files.items():
            write_durably(self.directory / path, text)
        self._note(number, hashlib.sha256(data).hexdigest())
        return True

    def is_of_application(self) -> bool:
        """Whether there is a copy at the address, of this application."""
        if (newest := self._newest()) is None:
            return False
        try:
            self._files_in(*newest)
        except CheckpointError:
            return False
        return True

    def latest_epoch(self) -> int:
        """The greatest epoch of the copies at the address; 0 without one."""
        return max(_numbers(place_at(self.address)), default=(0, 0))[0]

    def _newest(self) -> tuple[Number, bytes] | None:
        """The copy that counts; None without one."""
        place = place_at(self.address)
        numbers = _numbers(place)
        return (numbers[-1], place.read(_name(numbers[-1]))) if numbers else None

    def _files_in(self, number: Number, data: bytes) -> dict[Path, str]:
        where = place_at(self.address).where(_name(number))
        try:
            found = json.loads(data)
            written_as, owner = found["format"], found["application"]
            files = {Path(name): str(text) for name, text in found["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{where} is damaged ({error!r}); remove it to continue from the one before"
            ) from None
        if written_as != FORMAT:
            raise CheckpointError(
                f"{where} was written by another release of Felice (format {written_as}, this release: {FORMAT})"
            )
        if owner != self.application:
            raise CheckpointError(
                f"{where} is of the application {owner!r}, not of {self.application!r}; use another address"
            )
        if outside := next((name for name in files if name.is_absolute() or ".." in name.parts), None):
            raise CheckpointError(f"{where} is damaged: it names the file {outside}")
        return files

    @property
    def _noted(self) -> Path:
        """A file with the number and the digest of the copy that this machine wrote or read last."""
        return self.directory / NAME / "copied"

    def _last(self) -> tuple[Number, str]:
        try:
            epoch, number, digest = self._noted.read_text().split()
        except FileNotFoundError:
            return (0, 0), ""
        return (int(epoch), int(number)), digest

    def _note(self, number: Number, digest: str) -> None:
        write_aside(self._noted, f"{number[0]} {number[1]} {digest}")

    def _files(self) -> Iterator[Path]:
        names = [self.directory / name for name in ("metadata", *_DESCRIPTION)]
        for log in _LOGS:
            names += [
                self.directory / log / str(number) for number in numbers_in(self.directory / log)[-_LAST:]
            ]
        # Where sources of Spark, such as those of DataFrames, began.
        names += [path for path in (self.directory / "sources").rglob("*") if not path.name.startswith(".")]
        return (path for path in names if path.is_file())


def describe(checkpoint: Checkpoint, description: Description) -> None:
    """Replace the description, in the copy, too."""
    checkpoint.describe(description)
    if copy := copy_of(checkpoint, description.application):
        copy.push(valid_epoch(checkpoint.path))


def copy_of(checkpoint: Checkpoint, application: str) -> CheckpointCopy | None:
    """The copy of an application's checkpoint, if it has one."""
    address = checkpoint.copy_address
    return CheckpointCopy(checkpoint.path, address, application) if address else None


def check_address(checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` if the directory is a checkpoint without this copy, which the copy would replace."""
    kept = checkpoint.kept_copy_address
    if checkpoint.is_used and address_of(kept) != address_of(checkpoint.copy_address):
        raise CheckpointError(
            f"{checkpoint.path} is a checkpoint "
            + (f"with its copy at {kept}" if kept else "without a copy")
            + ": start it "
            + ("with that address" if kept else "without an address")
            + ", or start in another directory"
        )


def _name(number: Number) -> str:
    return f"{number[0]}-{number[1]}{SUFFIX}"


def _numbers(place: Place) -> list[Number]:
    """The numbers of the files, smallest first. An attempt that was cut off has another name."""
    names = [name.removesuffix(SUFFIX).split("-") for name in place.names() if name.endswith(SUFFIX)]
    return sorted(
        (int(name[0]), int(name[1])) for name in names if len(name) == 2 and all(map(str.isdigit, name))
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    # Hadoop's checksum of a file.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

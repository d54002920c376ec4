"""A copy of a checkpoint in HDFS or an object store, from which another machine continues.

Keeps true: before a task of a batch runs, the copy has the batch's offsets. So whoever continues from the copy runs the
            same batch again: what its tasks wrote stays right, and the brokers know whether it was committed.
            The copy is one file, and a new one is written before older ones are removed: it is always that of one
            moment. A start takes over the copy, whatever the directory holds.
How:        The copy has the description, and of Spark's logs the last two batches; they are all that a start needs. The
            state is not in it: it is at an address of its own. `lease` lets one machine at a time continue.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from felice.dataclass import dataclass
from felice.pipelines.streams.on_spark.directory import (
    NAME,
    Checkpoint,
    CheckpointError,
    Description,
    write_aside,
    write_durably,
)
from felice.pipelines.streams.on_spark.places import Place, place_at

FORMAT = 1
_LOGS = "offsets", "commits"
_LAST = 2
_DESCRIPTION = f"{NAME}/application.json", f"{NAME}/starting.json"
_SUFFIX = ".checkpoint"
_REMOVED_EVERY = 10


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """The copy of the checkpoint in `directory` at `address`."""

    directory: Path
    address: str

    def push(self) -> None:
        """Replace the copy by what the directory holds, if that is something else. Raises `PlaceError`."""
        files = {str(path.relative_to(self.directory)): path.read_text() for path in self._files()}
        data = json.dumps({"format": FORMAT, "files": files}).encode()
        digest = hashlib.sha256(data).hexdigest()
        last, pushed = self._last_pushed()
        if digest == pushed:
            return
        place, number = place_at(self.address), last + 1
        place.put(_name(number), secrets.token_hex(4), lambda file: file.write(data))
        self._note(number, digest)
        if number % _REMOVED_EVERY == 0:
            for older in _numbers(place)[:-1]:
                place.remove(_name(older))

    def pull(self, application: str) -> bool:
        """Replace the directory by the copy, and return True; without a copy leave it, and return False.

        Raises `CheckpointError` if the copy is of another application or release of Felice, or damaged.
        """
        place = place_at(self.address)
        numbers = _numbers(place)
        if not numbers:
            return False
        data, where = place.read(_name(numbers[-1])), place.where(_name(numbers[-1]))
        try:
            found = json.loads(data)
            written_as = found["format"]
            files = {Path(name): str(text) for name, text in found["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{where} is damaged: {error!r}") from None
        if written_as != FORMAT:
            raise CheckpointError(
                f"{where} was written by another release of Felice (format {written_as}, this release: {FORMAT})"
            )
        if outside := next((name for name in files if name.is_absolute() or ".." in name.parts), None):
            raise CheckpointError(f"{where} is damaged: it names the file {outside}")
        if (owner := _owner(files)) != application:
            raise CheckpointError(f"{self.address} has the checkpoint of {owner}, not of {application}")
        for log in (*_LOGS, "sources", "metadata"):
            _remove(self.directory / log)
        for name, text in files.items():
            write_durably(self.directory / name, text)
        self._note(numbers[-1], hashlib.sha256(data).hexdigest())
        return True

    def remove(self) -> None:
        """Remove the copy."""
        place = place_at(self.address)
        for number in _numbers(place):
            place.remove(_name(number))
        self._noted.unlink(missing_ok=True)

    @property
    def _noted(self) -> Path:
        """A file with the number and the digest of the copy that this machine wrote or read last."""
        return self.directory / NAME / "copied"

    def _last_pushed(self) -> tuple[int, str]:
        try:
            number, digest = self._noted.read_text().split()
        except FileNotFoundError:
            return max(_numbers(place_at(self.address)), default=0), ""
        return int(number), digest

    def _note(self, number: int, digest: str) -> None:
        write_aside(self._noted, f"{number} {digest}")

    def _files(self) -> Iterator[Path]:
        names = [self.directory / name for name in ("metadata", *_DESCRIPTION)]
        for log in _LOGS:
            numbered = [path for path in (self.directory / log).glob("[0-9]*") if path.name.isdigit()]
            names += sorted(numbered, key=lambda path: int(path.name))[-_LAST:]
        # Where sources of Spark, such as those of DataFrames, began.
        names += [path for path in (self.directory / "sources").rglob("*") if not path.name.startswith(".")]
        return (path for path in names if path.is_file())


def describe(checkpoint: Checkpoint, description: Description) -> None:
    """Replace the description, in the copy, too."""
    checkpoint.describe(description)
    if copy := copy_of(checkpoint):
        copy.push()


def copy_of(checkpoint: Checkpoint) -> CheckpointCopy | None:
    """The copy of a checkpoint, if it has one."""
    address = checkpoint.copy_address
    return CheckpointCopy(checkpoint.path, address) if address else None


def _owner(files: Mapping[Path, str]) -> str | None:
    text = files.get(Path(_DESCRIPTION[0]))
    return None if text is None else json.loads(text).get("application")


def _name(number: int) -> str:
    return f"{number}{_SUFFIX}"


def _numbers(place: Place) -> list[int]:
    """The numbers of the files, smallest first. An attempt that was cut off has another name."""
    names = [name.removesuffix(_SUFFIX) for name in place.names() if name.endswith(_SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    # Hadoop's checksum of a file.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

"""The files of a checkpoint about its application: name, topology, partitions, running process and last batch.

Keeps true: a directory belongs to one application with one topology, and one process runs it at a time. Its description
            is complete or absent: it is written to another file, synced and renamed. It names the directory of the
            state, so replacing the description also replaces the state.
Where:      CHECKPOINT/felice-streams/application.json; `progress.json` after each batch; `stop` or `reload` while it
            is asked for; `lock` (see `lock`); and the state of tasks in STATE/PART/PLACE (see `state`).
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from felice.dataclass import dataclass

NAME = "felice-streams"
FORMAT = 3
WITHOUT_PARTS = 2
"""The format whose descriptions name no stores; it is read, too."""
FIRST_STATE = "state-0"
_HALF_AN_ADDRESS = re.compile(r"(?:s3|file|hdfs|webhdfs|swebhdfs):(?!//)", re.IGNORECASE)


class CheckpointError(Exception):
    """A checkpoint that cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """A store, as the checkpoint knows it."""

    name: str
    shape: str
    """Its kind, formats and windows."""
    is_named: bool
    """Whether the application gave it its name."""
    exact: str
    loose: str
    """See `lineage.Lineage`."""
    layout: str = ""
    """The structure of its values, if its shape does not contain it. Empty in descriptions of older releases."""

    def fits(self, later: StoreDescription) -> bool:
        """Whether the store of a later version can use the rows of this store."""
        return self.shape == later.shape and self.layout in ("", later.layout)


@dataclass(frozen=True, slots=True)
class PartDescription:
    """A sub-topology whose tasks have state, with the directory of their files below that of the state."""

    number: int
    directory: str
    stores: tuple[StoreDescription, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """An application, as its checkpoint knows it. `starting` are the source's options for the first batch."""

    application: str
    topology: str
    partitions: int
    starting: dict[str, str]
    state: str = FIRST_STATE
    """The directory of the state, below the checkpoint or below `state_at`."""
    state_at: str = ""
    """Where the state is, if not in the checkpoint: an address such as `s3://bucket/path`, or a path."""
    format: int = FORMAT
    is_frame: bool = False
    """Whether `stream.df` made the checkpoint. The user's program runs the query then, which holds no lock."""
    parts: tuple[PartDescription, ...] | None = None
    """None in descriptions of earlier releases: each sub-topology has a directory with its number."""
    topics: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()
    """The topics and the DataFrames that the application reads."""
    starts: dict[str, dict[str, int]] = field(default_factory=dict)
    """The first offsets of topics that do not begin at their start, by topic and partition."""
    python: str = ""
    """The release of Python that made it, such as 3.12: others compile functions to other code."""

    def directory_of(self, part: int) -> str:
        """The directory of a sub-topology's tasks."""
        named = {one.number: one.directory for one in self.parts or ()}
        return named.get(part, str(part))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint directory. It need not exist."""

    path: Path
    copy_at: str = ""
    """The address of its copy, if `felice run` was given one (see `checkpoint_copy`)."""

    @property
    def copy_address(self) -> str:
        """The address of its copy, also if only an earlier start was given it; empty without a copy."""
        return self.copy_at or self.kept_copy_address

    @property
    def kept_copy_address(self) -> str:
        """The address of the copy that the directory has."""
        try:
            return (self.directory / "copy").read_text()
        except FileNotFoundError:
            return ""

    @property
    def directory(self) -> Path:
        """The directory of Felice's files, beside Spark's own."""
        return self.path / NAME

    @property
    def query_id(self) -> str:
        """The id that Spark's query got at its first start. Raises FileNotFoundError before the first start."""
        id: str = json.loads((self.path / "metadata").read_text())["id"]
        return id

    @property
    def progress_path(self) -> Path:
        """Where a running application reports its last batch."""
        return self.directory / "progress.json"

    @property
    def stop_path(self) -> Path:
        """A file that asks the application to stop."""
        return self.directory / "stop"

    @property
    def reload_path(self) -> Path:
        """A file that asks the process of the application to read its program again."""
        return self.directory / "reload"

    @property
    def requests(self) -> tuple[Path, ...]:
        """Files with requests. A run that ended early may have left them, and the next run must ignore them."""
        return self.stop_path, self.reload_path, self._reloaded_path, self.progress_path

    def forget_requests(self) -> None:
        """Remove what an earlier run has left. A start that was refused leaves it there."""
        for path in self.requests:
            path.unlink(missing_ok=True)

    def answer_reload(self, changes: dict[str, Any]) -> None:
        """Report the changes that followed from reading the program again."""
        write_aside(self._reloaded_path, json.dumps(changes))
        self.reload_path.unlink(missing_ok=True)

    def take_answer(self) -> dict[str, Any]:
        """Remove and return the last answer to a reload."""
        found: dict[str, Any] = json.loads(self._reloaded_path.read_text())
        self._reloaded_path.unlink()
        return found

    @property
    def _reloaded_path(self) -> Path:
        return self.directory / "reloaded.json"

    def state_location(self, description: Description) -> str:
        """The path or the address of the tasks' stores."""
        return below(description.state_at or str(self.directory), description.state)

    def task_location(self, description: Description, part: int, place: int) -> str:
        """The path or the address of one task's stores."""
        return below(self.state_location(description), description.directory_of(part), str(place))

    @property
    def is_used(self) -> bool:
        """Whether an application has used it."""
        return (self.directory / "application.json").exists()

    @property
    def is_of_frame(self) -> bool:
        """`Description.is_frame`; False for a checkpoint that cannot be read."""
        found = self._readable_description()
        return found is not None and found.is_frame

    def belongs_to(self, application: str) -> bool:
        """Whether `felice run` has used it for the application; False for a checkpoint that cannot be read."""
        found = self._readable_description()
        return found is not None and found.application == application and not found.is_frame

    def _readable_description(self) -> Description | None:
        try:
            return self.description()
        except (CheckpointError, OSError, TypeError, AttributeError):
            return None

    def description(self) -> Description | None:
        """The application that uses the checkpoint; None if no application has used it.

        Raises `CheckpointError` if another release of Felice, or another query, wrote it.
        """
        try:
            found = json.loads((self.directory / "application.json").read_text())
        except FileNotFoundError:
            if (self.path / "metadata").exists():
                raise CheckpointError(
                    f"{self.path} is the checkpoint of another query of Spark; use another directory"
                ) from None
            return None
        except ValueError as error:
            raise CheckpointError(f"{self.directory}/application.json is damaged: {error}") from None
        if found.get("format") not in (WITHOUT_PARTS, FORMAT):
            raise CheckpointError(
                f"{self.path} was written by another release of Felice (format {found.get('format')}; this release "
                f"reads formats {WITHOUT_PARTS} and {FORMAT}); use that release, or another checkpoint"
            )
        return description_in(found)

    def describe(self, description: Description) -> None:
        """Replace the description."""
        self.keep_copy_address()
        write_durably(self.directory / "application.json", json.dumps(asdict(description), indent=1))

    def keep_copy_address(self) -> None:
        """Let later starts in the directory know its copy."""
        if self.copy_at not in ("", self.kept_copy_address):
            write_durably(self.directory / "copy", self.copy_at)

    def start_from(self, options: dict[str, str]) -> None:
        """Make the next start, which finds an empty checkpoint, begin at these offsets instead of the topics'
        beginning.
        """
        write_durably(self._starting_path, json.dumps(options))

    def starting(self) -> dict[str, str]:
        """The source's options for a first start; empty unless `start_from` gave some."""
        try:
            found: dict[str, str] = json.loads(self._starting_path.read_text())
        except FileNotFoundError:
            return {}
        return found

    @property
    def _starting_path(self) -> Path:
        return self.directory / "starting.json"

    def progress(self) -> dict[str, Any]:
        """The last report; empty if there is none."""
        try:
            found: dict[str, Any] = json.loads(self.progress_path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found

    def report(self, progress: dict[str, Any]) -> None:
        """Replace the last report."""
        write_aside(self.progress_path, json.dumps(progress))

    def last_batches(self) -> tuple[int, int]:
        """The last batch that Spark has planned, and the last that is done; -1 if there is none."""
        return last_number(self.path / "offsets"), last_number(self.path / "commits")


def checkpoint_of(application: str, location: Path | str | None) -> Checkpoint:
    """The checkpoint in the directory `location`, or without one in the default directory. If `location` is an address,
    the checkpoint is in the default directory, and the address is that of its copy.
    """
    default = Path(f"{application}-checkpoint").absolute()
    if location is None:
        return Checkpoint(default)
    if _HALF_AN_ADDRESS.match(str(location)):
        raise CheckpointError(f"{location} is no directory, and no address such as s3://BUCKET/PATH")
    if is_address(str(location)):
        return Checkpoint(default, str(location))
    return Checkpoint(Path(location).absolute())


def checkpoints_below(directory: Path) -> Iterator[Checkpoint]:
    """The checkpoints of applications in a directory, and the directory itself if it is one."""
    found = (
        {directory, *(path for path in directory.iterdir() if path.is_dir())} if directory.is_dir() else ()
    )
    return (checkpoint for checkpoint in map(Checkpoint, sorted(found)) if checkpoint.is_used)


def description_in(found: dict[str, Any]) -> Description:
    """The description in a document, which `asdict` made."""
    if (parts := found.get("parts")) is not None:
        found["parts"] = tuple(
            PartDescription(
                part["number"], part["directory"], tuple(StoreDescription(**one) for one in part["stores"])
            )
            for part in parts
        )
    for inputs in ("topics", "frames"):
        found[inputs] = tuple(found.get(inputs, ()))
    return Description(**found)


def numbers_in(directory: Path) -> list[int]:
    """The numbers that are names of files in a log of Spark, smallest first."""
    return sorted(int(path.name) for path in directory.glob("[0-9]*") if path.name.isdigit())


def last_number(directory: Path) -> int:
    """The greatest number that is the name of a file in a log of Spark; -1 if there is none."""
    return max(numbers_in(directory), default=-1)


def write_aside(path: Path, text: str) -> None:
    """Replace a file, so that a reader finds the old or the new text. After a power failure it may be neither."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    aside.write_text(text)
    aside.replace(path)


def write_durably(path: Path, text: str | bytes) -> None:
    """Replace a file, or make it, so that after a crash it has the old or the new text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with aside.open("wb") as file:
        file.write(text.encode() if isinstance(text, str) else text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_address(location: str) -> bool:
    """Whether a location is an address and no path."""
    return "://" in location


def address_of(location: str) -> str:
    """A location without the parameters of an address, such as the endpoint of an object store."""
    return location.partition("?")[0].rstrip("/")


def below(location: str, *names: str) -> str:
    """A path or an address below another one. An address keeps its parameters."""
    address, mark, parameters = location.partition("?") if "://" in location else (location, "", "")
    return "/".join([address.rstrip("/"), *names]) + mark + parameters

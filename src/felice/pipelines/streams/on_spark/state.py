"""The files of one task's state in the checkpoint: a delta for each batch, and a base every few batches.

Keeps true: version n is the state after batch n. It is read from the newest base up to n and every delta after it; if
            one is missing, that is an error and not an older state.
            A base of many rows is written in pieces, some rows at a time. A piece has rows as they were after a batch
            that Spark has finished. A reader of the base also reads all deltas since its first piece: a row that
            changed after its piece was written is in one of these deltas.
            A version is complete or absent, as `places` ensures for each kind of place. Spark's own logs
            decide which version counts: a batch that runs again starts from the version before it and replaces its
            file.
Where:      `N.delta`, `N.base` and `N.FIRST-MARK.piece` in a directory of the task, at a place that all workers
            share; the last piece of a base is `N.FIRST-MARK.last`. A file is a header (magic, format version, CRC-32C
            of the rest, identity, number of rows, stream time) and the compressed changes of each store, some rows
            at a time: neither the writer nor the reader of a file needs memory for all of its rows.
"""

from __future__ import annotations

import io
import pickle
import re
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import lz4.frame
from crc32c import crc32c

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import UNWRITABLE
from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
from felice.pipelines.streams.on_spark.places import LocalPlace, Place, place_at
from felice.pipelines.streams.record import LATEST_MS
from felice.pipelines.streams.stores import NEVER, Clocks, Numbers, Row, Store
from felice.pipelines.streams.telling import shown

MAGIC = b"FLST"
FORMAT_VERSION = 4
PACKED_KEYS = 2
"""The first format that is read. Its rows are found by packed keys instead of the keys' bytes. In formats 2 and 3, all
changes of a file are one pickle.
"""
BYTES_PER_ROW = 220
"""About how much memory a row takes besides its bytes in a file: for objects of Python, and its place in a dict."""
ROWS_AT_ONCE = 50_000
_READ_BYTES = 1 << 20
BATCHES_PER_BASE = 10
KEPT_BASES = 2
_HEADER = struct.Struct(">4sBI")
_ABOUT = struct.Struct(">QQq")
NOTHING = -1

Changes = dict[str, list[Row]]


class StateError(Exception):
    """State that cannot be read; the text names the file and what to do."""


class Version(NamedTuple):
    """The number of a version, and the identity of its file.

    A batch that runs again writes a file with another identity.
    """

    number: int
    identity: int


EMPTY = Version(NOTHING, 0)
AfterEach = Callable[[Version], None]


class Size(NamedTuple):
    """The size of a task's state: rows of all its stores, bytes on disk, and its stream time (-1 without windows)."""

    rows: int
    size_bytes: int
    stream_time: int


class _Plain(pickle.Unpickler):
    """An unpickler that reads plain values only, and refuses everything that would be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} is no plain value")


class _OnlyPlain(pickle.Pickler):
    """A pickler that refuses what `_Plain` would not read. Values of plain types do not come here."""

    def reducer_override(self, value: Any) -> NoReturn:
        raise StateError(f"{shown(value)} of type {type(value).__name__} cannot be kept in state")


def files_of_task(checkpoint: Checkpoint, description: Description, part: int, place: int) -> StateFiles:
    """The files of the task of a sub-topology (`part`) and a partition (`place`)."""
    return StateFiles(place_at(checkpoint.task_location(description, part, place)))


_FILE = re.compile(r"([0-9]+)\.(delta|base)")
_PIECE = re.compile(r"([0-9]+)\.(([0-9]+)-[0-9a-f]+)\.(piece|last)")
_LEFT = re.compile(r"\.([0-9]+)\..*")


class StateFiles:
    """The files of one task."""

    def __init__(self, place: Place | Path) -> None:
        self._place = LocalPlace(place) if isinstance(place, Path) else place
        self._rows_seen = self._bytes_seen = 0

    def write(
        self, number: int, changes: Changes, stores: Mapping[str, Store], *, with_base: bool = True
    ) -> Version:
        """Write the version after a batch. Every few batches also write a base, and remove older files."""
        is_due = number % BATCHES_PER_BASE == BATCHES_PER_BASE - 1
        if is_due and not with_base:
            self._place.remove(
                f"{number}.base"
            )  # Of the same batch, when it ran before with its rows in memory.
        version = self._write(f"{number}.delta", number, [changes], stores)
        if is_due and with_base:
            self._write(f"{number}.base", number, _all_rows(stores), stores)
            self._remove_older()
        return version

    def write_piece(
        self, number: int, base: str, rows: Changes, stores: Mapping[str, Store], *, is_last: bool
    ) -> None:
        """Write a part of a version's rows. The pieces of a base have all rows, each of its own version: `base` is
        the number of the first one's version, and what makes it unique.
        """
        self._write(f"{number}.{base}.{'last' if is_last else 'piece'}", number, [rows], stores)
        if is_last:
            self._remove_older()

    @property
    def row_bytes(self) -> float:
        """The size of a row in files, uncompressed: the mean of those that were read and written."""
        return self._bytes_seen / (self._rows_seen or 1)

    @property
    def has_pieces(self) -> bool:
        """Whether a base was written in pieces, or is being written: there were too many rows for one."""
        return any(_PIECE.fullmatch(name) for name in self._place.names())

    def write_first(self, number: int, stores: Mapping[str, Store]) -> Version:
        """Write a version that no version of this directory comes before."""
        return self.write_rows(number, _all_rows(stores), row_count(stores), latest_time(stores))

    def write_rows(self, number: int, changes: Iterable[Changes], rows: int, stream_time: int) -> Version:
        """`write_first` for changes that need not be in memory together, with the number of their rows and the stream
        time.
        """
        self._write_file(f"{number}.base", number, changes, rows, stream_time)
        return self._write_file(f"{number}.delta", number, (), rows, stream_time)

    def remove_all(self) -> None:
        """Remove the files."""
        self._place.remove_all()

    def size(self) -> Size:
        """The size of the newest version. Raises `StateError` if its file is damaged, `ValueError` if there is none."""
        names = self._place.names()
        newest = max(_numbered(names)["delta"])
        if (about := self._about(newest)) is None:
            raise StateError(f"{self._place.where(f'{newest}.delta')} is damaged")
        _, rows, stream_time = about
        base = _Base.newest(names, newest)
        kept = [size for number, size in _numbered(names)["delta"].items() if number > base.first]
        return Size(rows, sum(kept) + sum(names[name] for _, name in base.files), stream_time)

    def rows(self, number: int) -> int:
        """The number of rows of a version; 0 if its delta is missing or damaged, which `load` reports."""
        about = self._about_if_there(number)
        return 0 if about is None else about[1]

    def identity(self, number: int) -> int | None:
        """The identity of the delta of a version; None if the delta is missing or damaged, which `load` reports."""
        about = self._about_if_there(number)
        return None if about is None else about[0]

    def load(
        self, number: int, stores: dict[str, Store], after_each: AfterEach = lambda version: None
    ) -> Version:
        """Fill empty stores with a version. `after_each` is called after each file with the version that the stores
        have; before they have one, with EMPTY.
        """
        base = _Base.newest(self._place.names(), number)
        version = Version(base.first, 0)
        for at, name in base.files:
            version = self._deltas(version, at, stores, lambda _: after_each(EMPTY))
            self._apply(name, stores, lambda: after_each(EMPTY))
        return self.catch_up(version, number, stores, after_each)

    def catch_up(
        self,
        version: Version,
        number: int,
        stores: dict[str, Store],
        after_each: AfterEach = lambda version: None,
    ) -> Version:
        """Bring stores from one version to a later one."""
        version = self._deltas(version, number, stores, after_each)
        if version.number != NOTHING and version.identity == 0:
            version = Version(version.number, self._read(f"{version.number}.delta")[0])
        return version

    def _deltas(
        self, version: Version, number: int, stores: dict[str, Store], after_each: AfterEach
    ) -> Version:
        for one in range(version.number + 1, number + 1):
            version = Version(one, self._apply(f"{one}.delta", stores))
            after_each(version)
        return version

    def _about(self, number: int) -> tuple[int, int, int] | None:
        """Identity, number of rows and stream time of the delta of a version; None if its file is too short."""
        about = self._place.read(f"{number}.delta", _HEADER.size + _ABOUT.size)[_HEADER.size :]
        return None if len(about) < _ABOUT.size else _ABOUT.unpack(about)

    def _about_if_there(self, number: int) -> tuple[int, int, int] | None:
        try:
            return self._about(number)
        except FileNotFoundError:
            return None

    def _apply(
        self, name: str, stores: dict[str, Store], after_some: Callable[[], None] = lambda: None
    ) -> int:
        identity, version, some_at_a_time = self._read(name)
        for changes in some_at_a_time:
            for store, rows in changes.items():
                stores[store].load(_upgraded(stores[store], rows) if version == PACKED_KEYS else rows)
            after_some()
        return identity

    def _read(self, name: str) -> tuple[int, int, Iterator[Changes]]:
        where = self._place.where(name)
        try:
            data = self._place.read(name)
        except FileNotFoundError:
            raise StateError(
                f"{where} is missing. If the checkpoint was copied, copy it whole; else reset the application, which "
                "then begins again from the start of its topics"
            ) from None
        if len(data) < _HEADER.size:
            raise StateError(f"{where} is damaged")
        magic, version, checksum = _HEADER.unpack_from(data)
        if magic == MAGIC and not PACKED_KEYS <= version <= FORMAT_VERSION:
            raise StateError(
                f"{where} has format {version}; this release of Felice reads formats {PACKED_KEYS} to "
                f"{FORMAT_VERSION}"
            )
        rest = memoryview(data)[_HEADER.size :]
        if magic != MAGIC or crc32c(rest) != checksum:
            raise StateError(f"{where} is damaged")
        identity, _, _ = _ABOUT.unpack_from(rest)
        return identity, version, self._changes_in(rest[_ABOUT.size :])

    def _changes_in(self, compressed: memoryview) -> Iterator[Changes]:
        with lz4.frame.LZ4FrameFile(io.BytesIO(compressed)) as plain:
            file = io.BufferedReader(plain, _READ_BYTES)
            unpickler, read = _Plain(file), 0
            while file.peek(1):
                changes: Changes = unpickler.load()
                read, before = file.tell(), read
                self._see(changes, read - before)
                yield changes

    def _write(
        self, name: str, number: int, changes: Iterable[Changes], stores: Mapping[str, Store]
    ) -> Version:
        return self._write_file(name, number, changes, row_count(stores), latest_time(stores))

    def _write_file(
        self, name: str, number: int, some_at_a_time: Iterable[Changes], rows: int, stream_time: int
    ) -> Version:
        identity = secrets.randbits(63) + 1

        def write(file: BinaryIO) -> None:
            file.write(bytes(_HEADER.size))
            about = _ABOUT.pack(identity, rows, stream_time)
            file.write(about)
            compressed = _Compressed(file, crc32c(about))
            # Without references between values: few values are shared, and the search for shared values takes long.
            pickler = _OnlyPlain(compressed, protocol=5)
            pickler.fast = True
            for changes in some_at_a_time:
                before = compressed.size
                pickler.dump(changes)
                self._see(changes, compressed.size - before)
            compressed.end()
            file.seek(0)
            file.write(_HEADER.pack(MAGIC, FORMAT_VERSION, compressed.checksum))

        self._place.put(name, f"{identity:x}", write)
        return Version(number, identity)

    def _see(self, changes: Changes, size: int) -> None:
        self._rows_seen += sum(map(len, changes.values()))
        self._bytes_seen += size

    def _remove_older(self) -> None:
        names = self._place.names()
        bases = sorted(base.first for base in _Base.all(names))
        if len(bases) <= KEPT_BASES:
            return
        oldest = bases[-KEPT_BASES]
        # With unfinished files of processes that were killed.
        found = (
            (name, _FILE.fullmatch(name) or _PIECE.fullmatch(name) or _LEFT.fullmatch(name)) for name in names
        )
        for name in [name for name, parts in found if parts is not None and int(parts[1]) < oldest]:
            self._place.remove(name)


@dataclass(frozen=True, slots=True)
class _Base:
    """Files with all rows of a state, if the deltas after `first` are read, too."""

    first: int
    files: tuple[tuple[int, str], ...]
    """The version of each, and its name, in the order of versions."""

    @property
    def last(self) -> int:
        """The version of the last piece: the state of no earlier version can be read from here."""
        return max((number for number, _ in self.files), default=NOTHING)

    @staticmethod
    def all(names: Iterable[str]) -> Iterator[_Base]:
        """The complete ones among these files."""
        pieces: dict[str, list[tuple[int, str]]] = {}
        complete = set()
        for name in names:
            if (parts := _FILE.fullmatch(name)) is not None and parts[2] == "base":
                yield _Base(int(parts[1]), ((int(parts[1]), name),))
            elif (parts := _PIECE.fullmatch(name)) is not None:
                pieces.setdefault(parts[2], []).append((int(parts[1]), name))
                complete |= {parts[2]} if parts[4] == "last" else set()
        for base in complete:
            yield _Base(int(base.partition("-")[0]), tuple(sorted(pieces[base])))

    @staticmethod
    def newest(names: Iterable[str], number: int) -> _Base:
        """The base from which a version is read; without files if there is none."""
        usable = (base for base in _Base.all(names) if base.last <= number)
        return max(usable, key=lambda base: base.first, default=_Base(NOTHING, ()))


def _numbered(names: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """The sizes of the deltas and of the bases among files, by number."""
    found: dict[str, dict[int, int]] = {"delta": {}, "base": {}}
    for name, size in names.items():
        if (parts := _FILE.fullmatch(name)) is not None:
            found[parts[2]][int(parts[1])] = size
    return found


class _Compressed:
    """Compresses what is written to it, piece by piece: a base is never in memory as a whole."""

    def __init__(self, file: BinaryIO, checksum: int) -> None:
        self._file, self._compressor = file, lz4.frame.LZ4FrameCompressor()
        self.checksum, self.size = checksum, 0
        self._put(self._compressor.begin())

    def write(self, data: bytes) -> None:
        """The next piece."""
        self.size += len(data)
        self._put(self._compressor.compress(data))

    def end(self) -> None:
        """Write what is left."""
        self._put(self._compressor.flush())

    def _put(self, data: bytes) -> None:
        self.checksum = crc32c(data, self.checksum)
        self._file.write(data)


def _upgraded(store: Store, rows: list[Row]) -> Iterator[Row]:
    """Rows of the format before this one. Keys that have no bytes, such as NaN in JSON, are left out."""
    for row in rows:
        with suppress(*UNWRITABLE):
            yield store.upgraded(row)


def _all_rows(stores: Mapping[str, Store]) -> Iterator[Changes]:
    for name, store in stores.items():
        rows = iter(store.rows.items())
        while some := list(islice(rows, ROWS_AT_ONCE)):
            yield {name: some}


def row_count(stores: Mapping[str, Store]) -> int:
    """How many rows the stores have."""
    return sum(len(store.rows) for store in stores.values())


def latest_time(stores: Mapping[str, Store]) -> int:
    """The greatest time of a clock. Not counted: numbers of records, and the time past `LATEST_MS` of a join that waits
    for no record.
    """
    clocks = [one for one in stores.values() if isinstance(one, Clocks) and not isinstance(one, Numbers)]
    times = [time for one in clocks for time in one.rows.values()]
    return max((time for time in times if time <= LATEST_MS), default=NEVER)

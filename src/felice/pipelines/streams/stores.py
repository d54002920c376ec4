"""The state of operators: rows of tables, held changes, and stream times. `window_stores` has windows and sessions.

Keeps true: a store finds a row by the bytes of its key, as Kafka's stores do: Python finds equal 1, 1.0 and True.
            It holds packed values only (`formats`), so a caller that changes a value does not change the store, and
            whoever loads the rows needs no class of the application.
            `take_changes` gives each row that changed since it was last called, with None for a deleted row; a new
            store that loads these changes in order holds the same rows. A runner persists stores in this way.
            Rows are in a dict, or in what a runner gave with `keep_in`: the store works in the same way.
"""

from __future__ import annotations

import marshal
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from enum import Enum
from operator import index
from typing import Any, ClassVar, Protocol, runtime_checkable

from felice.pipelines.errors import FormatError
from felice.pipelines.streams.formats import UNWRITABLE, Format
from felice.pipelines.streams.record import Change, Headers, Record, Timestamped, made
from felice.pipelines.streams.telling import shown

Row = tuple[Any, Any]
NEVER = -1
LAST_NUMBER = "last"
TASK_TIME = "task"
"""The clock of a task: the greatest timestamp of all records that it was given."""


class Rows(Enum):
    """How the rows of a store are divided among the partitions of its tasks."""

    BY_KEY = "by key"
    """Where the records of their keys are."""
    EVERYWHERE = "everywhere"
    """In each partition: the rows of a global table."""
    ANYWHERE = "anywhere"
    """Where a processor put them."""


KEY_MARSHAL = 2
"""A version of `marshal` that writes equal keys as equal bytes: later ones write references."""


@runtime_checkable
class OrderedRows(Protocol):
    """Rows that know the order of their keys; a dict does not."""

    def in_order(
        self, first: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """The rows from the first key on and before the end, by the bytes that `Store.disk_key` makes of their keys.
        Rows that are added or deleted during the iteration are left out.
        """

    def read_ahead(self, row_keys: Iterable[Any]) -> None:
        """Read rows that will be looked up soon: many at once take less time than one by one."""


class _Nothing(dict[Any, Any]):
    """In place of rows while indexes are made of them: it keeps nothing."""

    def __setitem__(self, key: Any, row: Any) -> None:
        pass


class Found(Enum):
    """How a store finds rows, besides by their whole keys."""

    BY_KEY = "by key"
    """In the order of their keys."""
    BY_TIME = "by time"
    """Rows with keys (bytes, time), in the order of times."""
    BY_INDEX = "by index"
    """With an index in memory, which has an entry for each row."""


class Store:
    """A named table of packed rows that remembers which rows changed."""

    found: ClassVar[Found] = Found.BY_INDEX

    def __init__(self, name: str) -> None:
        self.name = name
        self.placed = Rows.BY_KEY
        self.rows: MutableMapping[Any, Any] = {}
        self._changed: set[Any] = set()

    def disk_key(self, row_key: Any) -> bytes:
        """A row's key as bytes, whose order is that of the rows."""
        return marshal.dumps(row_key, KEY_MARSHAL)

    def row_key_of(self, disk_key: bytes) -> Any:
        """The row's key that `disk_key` made these bytes of."""
        return marshal.loads(disk_key)

    def keep_in(self, rows: MutableMapping[Any, Any]) -> None:
        """Use these rows from now on. Must be called before operators use the store."""
        if self.found is Found.BY_INDEX:
            self.rows = _Nothing()
            for key, row in rows.items():
                self._apply(key, row)
        self.rows = rows

    def shape(self) -> str:
        """What the rows are, for people and for comparison: stores of one shape can read each other's rows."""
        names = ", ".join(one.name for one in self.formats())
        return f"{type(self).__name__} of {names}" if names else type(self).__name__

    def formats(self) -> tuple[Format, ...]:
        """The formats of the keys and values in the rows."""
        return ()

    def layout(self) -> str:
        """The structure of the rows' values, if the names of the formats do not contain it; else empty."""
        return "; ".join(filter(None, (one.layout for one in self.formats())))

    def look_ahead(self, keys: Iterable[bytes | None], timestamps: Iterable[int]) -> None:
        """Records with these keys and timestamps come next: read what may be looked up from rows on disk."""

    def take_changes(self) -> list[Row]:
        """Rows that changed since the last call, with None for a removed row."""
        changes = [(key, self.rows.get(key)) for key in self._changed]
        self._changed.clear()
        return changes

    def forget_changes(self) -> None:
        """Remember no changed rows: nobody will take them."""
        self._changed.clear()

    def load(self, changes: Iterable[Row]) -> None:
        """Apply changes that another store gave. A row may come twice, also an older one before a newer one."""
        for key, row in self._read_ahead(changes):
            self._apply(key, row)

    def _read_ahead(self, changes: Iterable[Row]) -> Iterable[Row]:
        """The changes. Rows on disk are read before they change: their number must be known."""
        if isinstance(self.rows, OrderedRows):
            changes = list(changes)
            self.rows.read_ahead(key for key, _ in changes if key is not None)
        return changes

    def upgraded(self, row: Row) -> Row:
        """A row as this release keeps it, made of one of an earlier release, whose row keys held packed keys."""
        return row

    def owner(self, row_key: Any) -> bytes | None:
        """The bytes of the record key whose partition a row belongs to; None if that is not known.

        Only stores whose rows are placed by record keys know it. The number of partitions of other stores cannot be
        changed.
        """
        return None

    def _apply(self, key: Any, row: Any) -> None:
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row

    def _set(self, key: Any, row: Any) -> None:
        self._changed.add(key)
        self._apply(key, row)


class IndexedStore(Store):
    """A store that also keeps its keys in another order. Subclasses are notified of each added or removed key."""

    def _apply(self, key: Any, row: Any) -> None:
        was_there = key in self.rows
        super()._apply(key, row)
        if row is None and was_there:
            self._removed(key)
        elif row is not None and not was_there:
            self._added(key)

    def _added(self, key: Any) -> None:
        raise NotImplementedError

    def _removed(self, key: Any) -> None:
        raise NotImplementedError


class Clocks(Store):
    """Stream times by name: the greatest timestamp that an operator has seen."""

    def get(self, name: str) -> int:
        """The time, or -1 before the first record."""
        time: int = self.rows.get(name, NEVER)
        return time

    def set(self, name: str, timestamp: int) -> None:
        """Set a time, which may be smaller than the previous one."""
        if timestamp != self.rows.get(name):
            self._set(name, timestamp)

    def advance(self, name: str, timestamp: int) -> int:
        """Raise the time to a timestamp if that is greater, and return the time."""
        time: int = self.rows.get(name, NEVER)
        if timestamp > time:
            self._changed.add(name)
            self.rows[name] = timestamp
            return timestamp
        return time

    def of_several_tasks(self, one: int, other: int) -> int:
        """The time that continues those of two tasks: no window closes earlier than before."""
        return min(one, other)


class Numbers(Clocks):
    """The last number that an operator gave to a record of its task."""

    def next(self) -> int:
        """A number that is greater than all earlier ones of the task, also of those before a restart."""
        number: int = self.rows.get(LAST_NUMBER, NEVER) + 1
        self._changed.add(LAST_NUMBER)
        self.rows[LAST_NUMBER] = number
        return number

    def of_several_tasks(self, one: int, other: int) -> int:
        """The last number of two tasks that become one: the greater of theirs."""
        return max(one, other)


class KeyedStore(Store):
    """A store with one row for each key."""

    def disk_key(self, row_key: bytes) -> bytes:
        """The bytes themselves."""
        return row_key

    def row_key_of(self, disk_key: bytes) -> bytes:
        """The bytes themselves."""
        return disk_key

    def __init__(self, name: str, key: Format, value: Format) -> None:
        super().__init__(name)
        self._key, self._value = key, value

    @property
    def key_format(self) -> Format:
        """The format of the keys."""
        return self._key

    def formats(self) -> tuple[Format, ...]:
        """The formats of keys and values."""
        return self._key, self._value

    def row_key(self, key: Any) -> Any:
        """What the row of a key is found by."""
        return self._key.key_bytes(key)

    def look_ahead(self, keys: Iterable[bytes | None], timestamps: Iterable[int]) -> None:
        """The rows of the keys."""
        if isinstance(self.rows, OrderedRows):
            self.rows.read_ahead(key for key in keys if key is not None)

    def upgraded(self, row: Row) -> Row:
        """The row, found by its key's bytes."""
        key, kept = row
        return self._key.bytes_of_packed(key), kept

    def owner(self, row_key: Any) -> bytes | None:
        """That of the row's key."""
        return self._key.placed_by(row_key) if self.placed is Rows.BY_KEY else None


class KeyValueStore(KeyedStore):
    """A table: one value for each key, with the timestamp of its last change."""

    found = Found.BY_KEY

    def __init__(self, name: str, key: Format, value: Format, placed: Rows = Rows.BY_KEY) -> None:
        super().__init__(name, key, value)
        self._write_key, self._pack, self._unpack = key.write, value.pack, value.unpack
        self.placed = placed

    def get(self, key: Any) -> Timestamped | None:
        """The row of a key."""
        try:
            row = self.rows.get(self._write_key(key))
        except UNWRITABLE as error:
            raise self._key.refusal(key, error) from None
        return made(Timestamped, (self._unpack(row[0]), row[1])) if row is not None else None

    def put(self, key: Any, value: Any, timestamp: int = 0) -> None:
        """Set the value of a key; None deletes it."""
        row_key = self._key.key_bytes(key)
        self._set(row_key, None if value is None else (packed_in(self._value, value), index(timestamp)))

    def put_changed(self, key: Any, value: Any, timestamp: int) -> bool:
        """`put`, unless the key has this value; returns whether it did. Only for values that are packed as bytes."""
        packed = packed_in(self._value, value)
        assert type(packed) is bytes, "other packed values may be equal and differ"
        row_key = self._key.key_bytes(key)
        row = self.rows.get(row_key)
        if row is not None and row[0] == packed:
            return False
        self._set(row_key, (packed, timestamp))
        return True

    def putter(self, *, sends_old: bool) -> Callable[[Any, Any, int], Any]:
        """A function (key, value, timestamp) that does `put`, and returns the old value if `sends_old`."""
        rows, changed = self.rows, self._changed
        key_bytes, pack, unpack = self._key.key_bytes, self._pack, self._unpack

        def put(key: Any, value: Any, timestamp: int) -> Any:
            row_key = key_bytes(key)
            row = rows.get(row_key) if sends_old else None
            changed.add(row_key)
            if value is None:
                rows.pop(row_key, None)
            else:
                try:
                    rows[row_key] = pack(value), timestamp
                except UNWRITABLE as error:
                    raise self._value.refusal(value, error) from None
            return None if row is None else unpack(row[0])

        return put

    def updater(
        self,
        initial: Callable[[], Any],
        compute: Callable[[Any, Any, Any], Any],
        *,
        sends_old: bool,
    ) -> Callable[[Any, Any, int], tuple[Change, int]]:
        """A function (key, value, timestamp) that does `put` with the result of `compute(key, value, stored value)`,
        and returns the change and the row's time.

        A row keeps the greatest timestamp of its records. A key without row has the value `initial()`.
        """
        rows, changed = self.rows, self._changed
        key_bytes, pack, unpack = self._key.key_bytes, self._pack, self._unpack
        plain = self._value.plain

        def update(key: Any, value: Any, timestamp: int) -> tuple[Change, int]:
            row_key = key_bytes(key)
            row, old = rows.get(row_key), None
            if row is None:
                new = compute(key, value, initial())
            else:
                packed, before = row
                if before > timestamp:
                    timestamp = before
                if sends_old:
                    # Unpacked on its own, because `compute` may change the object that it gets.
                    old = unpack(packed)
                new = compute(key, value, packed if type(packed) is plain else unpack(packed))
            if new is not None:
                try:
                    rows[row_key] = new if type(new) is plain else pack(new), timestamp
                except UNWRITABLE as error:
                    raise self._value.refusal(new, error) from None
            elif row is not None:
                del rows[row_key]
            changed.add(row_key)
            return made(Change, (new, old, True)), timestamp

        return update

    def put_if_absent(self, key: Any, value: Any, timestamp: int = 0) -> Timestamped | None:
        """`put`, if the key has no row. Returns the row that it has."""
        row = self.get(key)
        if row is None:
            self.put(key, value, timestamp)
        return row

    def delete(self, key: Any) -> Timestamped | None:
        """Delete the row of a key, and return it."""
        row = self.get(key)
        self.put(key, None)
        return row

    def items(self, *, reverse: bool = False) -> Iterator[tuple[Any, Timestamped]]:
        """All rows by their keys' bytes. Rows that are added or deleted during the iteration are left out."""
        return self._chosen(None, None, reverse=reverse)

    def range(self, first: Any, last: Any, *, reverse: bool = False) -> Iterator[tuple[Any, Timestamped]]:
        """The rows from the first to the last key, both included, by their bytes; None is no bound."""
        low, high = (None if key is None else self._key.key_bytes(key) for key in (first, last))
        return self._chosen(low, None if high is None else high + b"\0", reverse=reverse)

    def items_from(self, first: bytes) -> Iterator[tuple[Any, Timestamped]]:
        """The rows whose keys have these bytes or greater bytes, in order."""
        return self._chosen(first, None)

    def prefix(self, prefix: bytes) -> Iterator[tuple[Any, Timestamped]]:
        """The rows whose keys' bytes begin with these."""
        return self._chosen(prefix, _behind(prefix))

    def _chosen(
        self, first: bytes | None, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Timestamped]]:
        """The rows from the first key on and before the end."""
        for row_key, row in in_order(self.rows, first, end, reverse=reverse):
            yield self._key.read(row_key), Timestamped(self._unpack(row[0]), row[1])


def in_order(
    rows: Any, first: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
) -> Iterator[Row]:
    """See `OrderedRows.in_order`; of rows that are found by bytes."""
    if isinstance(rows, OrderedRows):
        yield from rows.in_order(first, end, reverse=reverse)
        return
    is_wanted = (key for key in rows if (first is None or key >= first) and (end is None or key < end))
    for key in sorted(is_wanted, reverse=reverse):
        if (row := rows.get(key)) is not None:
            yield key, row


def _behind(prefix: bytes) -> bytes | None:
    """The first bytes behind all those that begin with the prefix; None if there are none."""
    shorter = prefix.rstrip(b"\xff")
    return shorter[:-1] + bytes([shorter[-1] + 1]) if shorter else None


def packed_in(format_: Format, value: Any) -> Any:
    """The packed value. Raises a `FormatError` that names it."""
    try:
        return format_.pack(value)
    except UNWRITABLE as error:
        raise format_.refusal(value, error) from None


def plain_headers(headers: Headers) -> Headers:
    """Headers as a store keeps them. Raises a `FormatError` for those that could not be read back."""
    return tuple((_header_name(name), None if value is None else bytes(value)) for name, value in headers)


def _header_name(name: Any) -> str:
    if not isinstance(name, str):
        raise FormatError(f"the header's name {shown(name)} is not text")
    return str.__str__(name)


class ChangeBuffer(KeyedStore):
    """One held change for each key, ordered by the time of its first held change, then by the key's bytes."""

    def __init__(self, name: str, key: Format, value: Format) -> None:
        super().__init__(name, key, value)
        self._places: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def _apply(self, key: Any, row: Any) -> None:
        before = self.rows.get(key)
        super()._apply(key, row)
        if before is not None:
            self._places.pop(bisect_left(self._places, (before[0], key)))
        if row is not None:
            insort(self._places, (row[0], key))

    def put(self, due: int, record: Record) -> None:
        """Hold a change. It replaces the key's previous change, and keeps its place in the order."""
        key, change, timestamp, headers = record
        row_key = self._key.key_bytes(key)
        before = self.rows.get(row_key)
        values = self._packed(change.new), self._packed(change.old)
        due = due if before is None else before[0]
        self._set(row_key, (due, *values, index(timestamp), plain_headers(headers)))

    def oldest(self) -> int | None:
        """The time of the first change."""
        return self._places[0][0] if self._places else None

    def take(self) -> Record:
        """Remove and return the first change."""
        row_key = self._places[0][1]
        _, new, old, timestamp, headers = self.rows[row_key]
        self._set(row_key, None)
        change = Change(self._unpacked(new), self._unpacked(old))
        return Record(self._key.read(row_key), change, timestamp, headers)

    def _packed(self, value: Any) -> Any:
        return None if value is None else packed_in(self._value, value)

    def _unpacked(self, packed: Any) -> Any:
        return None if packed is None else self._value.unpack(packed)

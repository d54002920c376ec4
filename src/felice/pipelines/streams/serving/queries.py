"""Queries of one application's stores, as its checkpoint has them after the last finished batch.

Keeps true: one thread reads the checkpoint and writes the answers, so that the event loop serves others meanwhile. An
            answer has at most `MOST_ROWS` rows and about `MOST_BYTES`, in the order of the keys' bytes, and says where
            the next answer begins.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from felice.dataclass import dataclass
from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.directory import Checkpoint
from felice.pipelines.streams.on_spark.large_state import STATE_MEMORY_MB
from felice.pipelines.streams.on_spark.queries import StoredState
from felice.pipelines.streams.record import Timestamped, Windowed
from felice.pipelines.streams.serving.texts import key_of, plain
from felice.pipelines.streams.topology import Topology
from felice.pipelines.streams.views import StoreView, is_between
from felice.pipelines.streams.window_stores import FIRST_START, LAST_START

MOST_ROWS, DEFAULT_ROWS = 10_000, 100
MOST_BYTES = 16 * 1024 * 1024
"""An answer ends with the row that exceeds this."""
T = TypeVar("T")


class NoSuchStore(Exception):
    """The application has no store with this name. The text names those that it has."""


class Found(NamedTuple):
    """Rows of a store."""

    batch: int
    rows: list[dict[str, Any]]
    next: str | None
    """The cursor of the next row; None if there is none."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are wanted. Texts are keys (`texts.key_of`); times are those of windows' starts in milliseconds."""

    key: str | None = None
    first: str | None = None
    last: str | None = None
    prefix: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    after: bytes = b""
    limit: int = DEFAULT_ROWS


class Queries:
    """Reads the stores of an application."""

    def __init__(
        self,
        app: App,
        checkpoint: Checkpoint,
        *,
        state_memory_mb: int = STATE_MEMORY_MB,
        local_state: Path | None = None,
    ) -> None:
        self.app, self.checkpoint = app, checkpoint
        self._state = StoredState(
            app, checkpoint.path, state_memory_mb=state_memory_mb, local_state=local_state
        )
        self._shapes = dict(_readable_stores(app.topology))
        self._thread = ThreadPoolExecutor(1, "state")

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(cancel_futures=True)

    async def run(self, call: Callable[[], T]) -> T:
        """Calls a function in the thread that reads the checkpoint."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def stores(self) -> list[dict[str, Any]]:
        """Name and shape of each store."""
        return [{"name": name, "shape": shape} for name, shape in self._shapes.items()]

    def select(self, name: str, wanted: Selection) -> Found:
        """The rows of a store. Raises ValueError for what the store's keys cannot be compared with."""
        view = self._view(name)
        matches, limit = _matcher(view, wanted), min(wanted.limit, MOST_ROWS)
        if wanted.key is not None and not view.is_windowed:
            key = key_of(wanted.key, view.key_format)
            row = view.entry(key)
            return Found(view.batch, [] if row is None else [_shown(key, row)], None)
        rows: list[dict[str, Any]] = []
        size = 0
        for place, key, row in _candidates(view, wanted, matches, limit + 1):
            if len(rows) == limit or size > MOST_BYTES:
                return Found(view.batch, rows, place.hex())
            rows.append(_shown(key, row))
            size += len(json.dumps(rows[-1]))
        return Found(view.batch, rows, None)

    def _view(self, name: str) -> StoreView:
        if name not in self._shapes:
            known = ", ".join(self._shapes) or "none"
            raise NoSuchStore(f"{self.app.name} has no store {name!r}; it has {known}")
        return self._state.store(name)


def _readable_stores(topology: Topology) -> Iterator[tuple[str, str]]:
    """The stores whose rows are keys and values, and not what a join keeps of records, with their shapes."""
    made = {name: store for part in topology.parts() for name, store in topology.made_stores(part).items()}
    for name, store in sorted(made.items()):
        if all(hasattr(store, one) for one in ("get", "items", "row_key")):
            yield name, topology.shape_of(name)


def _candidates(
    view: StoreView, wanted: Selection, matches: Callable[[Any], bool], count: int
) -> Iterator[tuple[bytes, Any, Timestamped]]:
    """The rows that are wanted, with their places, in order: at least the first `count` of them."""
    if view.is_in_order:
        # The places of all wanted rows begin with these bytes: rows before and behind them need not be read.
        common = b"" if wanted.prefix is None else _prefix(wanted.prefix, view)
        for place, key, row in view.entries_from(max(wanted.after, common)):
            if not place.startswith(common):
                return
            if matches(key):
                yield place, key, row
        return
    if wanted.key is not None:
        from_ms, to_ms = (_or(wanted.from_ms, FIRST_START), _or(wanted.to_ms, LAST_START))
        rows = view.entries_of(key_of(wanted.key, view.key_format), from_ms, to_ms)
    else:
        rows = view.entries()
    placed = ((view.place_of(key), key, row) for key, row in rows)
    chosen = (one for one in placed if one[0] >= wanted.after and matches(one[1]))
    yield from heapq.nsmallest(count, chosen, key=itemgetter(0))


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


def _matcher(view: StoreView, wanted: Selection) -> Callable[[Any], bool]:
    """Whether a row is wanted, by its key."""
    if (wanted.from_ms, wanted.to_ms) != (None, None) and not view.is_windowed:
        raise ValueError(f"store {view.name!r} has no windows, so its rows cannot be chosen by time")
    format_ = view.key_format

    def data_of(text: str | None) -> bytes | None:
        return None if text is None else format_.key_bytes(key_of(text, format_))

    exact = data_of(wanted.key)
    first, last = (None if text is None else key_of(text, format_) for text in (wanted.first, wanted.last))
    prefix = None if wanted.prefix is None else _prefix(wanted.prefix, view)

    def matches(key: Any) -> bool:
        window = None
        if isinstance(key, Windowed):
            key, window = key.key, key.window
        data = format_.key_bytes(key)
        return (
            (exact is None or data == exact)
            and (first is None or is_between(first, key, key))
            and (last is None or is_between(key, key, last))
            and (prefix is None or data.startswith(prefix))
            and (window is None or wanted.from_ms is None or window.start >= wanted.from_ms)
            and (window is None or wanted.to_ms is None or window.start <= wanted.to_ms)
        )

    return matches


def _prefix(text: str, view: StoreView) -> bytes:
    if view.key_format.name == "string":
        return text.encode()
    if view.key_format.name == "json":
        # The bytes of a text begin with a quote, and end with one that the prefix has not.
        return view.key_format.key_bytes(text)[:-1]
    raise ValueError(f"keys of format {view.key_format.name} have no prefix; use from and to")


def _shown(key: Any, row: Timestamped) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if isinstance(key, Windowed):
        shown["window"] = {"start": key.window.start, "end": key.window.end}
        key = key.key
    return {"key": plain(key), **shown, "value": plain(row.value), "timestamp": row.timestamp}

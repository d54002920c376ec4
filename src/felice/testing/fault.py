"""One scripted fault, and the script: which faults there are, in which order they fire, and what they did."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from enum import StrEnum
from typing import Self, TypeAlias

from felice.dataclass import dataclass
from felice.env.begun import time_limit
from felice.protocol.api import API, Api
from felice.protocol.errors import ErrorCode

# These APIs reach their logs through `services.partitions`. A request that names no partition cannot fail.
BY_PARTITION = {
    api.key
    for api in (API.PRODUCE, API.FETCH, API.LIST_OFFSETS, API.OFFSET_FOR_LEADER_EPOCH, API.DELETE_RECORDS)
}
# API, version, client id, and the topics of a request.
Asked: TypeAlias = tuple[Api, int, str | None, frozenset[str]]


class FaultKind(StrEnum):
    """What a fault does to a request."""

    FAIL = "fail"
    DROP = "drop"
    DELAY = "delay"
    BLACK_HOLE = "black_hole"


class FaultNotFired(AssertionError):
    """A scripted fault met fewer requests than it was scripted for."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What a fault did to one request. `api` is None for a connection that was cut by `drop_connections`."""

    kind: FaultKind
    api: str | None
    version: int
    client_id: str | None
    topics: tuple[str, ...] = ()
    error: ErrorCode | None = None
    delay_ms: float = 0


class Fault:
    """A scripted fault. It acts until it is used up or removed; the end of a `with` block removes it."""

    def __init__(
        self,
        kind: FaultKind,
        api: Api | None,
        topic: str | None,
        client_id: str | None,
        times: int | None,
        *,
        applied: bool = False,
        error: ErrorCode | None = None,
        delay_ms: float = 0,
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(f"a fault cannot fire {times} times")
        self.kind = kind
        self.api = api
        self.topic = topic
        self.client_id = client_id
        self.times = times
        self.applied = applied
        self.error = error
        self.delay_ms = delay_ms
        self.fired = 0
        self.is_removed = False
        self._script: Script | None = None
        self._held: set[asyncio.Future[None]] = set()

    @property
    def is_active(self) -> bool:
        """Whether it fires on the next request that matches."""
        return not self.is_removed and (self.times is None or self.fired < self.times)

    @property
    def is_pending(self) -> bool:
        """Whether it has not fired as often as scripted."""
        return self.fired < (1 if self.times is None else self.times)

    def remove(self) -> None:
        """Remove it and release what it holds. `injected` keeps what it did."""
        assert self._script is not None
        self._script.remove(self)

    def wait_fired(self, times: int | None = None, timeout_s: float = 60.0) -> None:
        """Wait until it has fired `times` times (default: as often as scripted, or once); raises `FaultNotFired`."""
        assert self._script is not None
        self._script.wait_fired(self, times or self.times or 1, timeout_s)

    def matches(self, asked: Asked) -> bool:
        """Whether it concerns this request."""
        api, _, client_id, topics = asked
        if self.kind is FaultKind.FAIL and not topics and api.key in BY_PARTITION:
            return False
        return (
            self.is_active
            and self.api in (None, api)
            and self.client_id in (None, client_id)
            and (self.topic is None or self.topic in topics)
        )

    async def hold(self, seconds: float | None) -> None:
        """Wait until the fault is removed or the broker stops; raises `TimeoutError` after `seconds`."""
        assert self._script is not None
        future = asyncio.get_running_loop().create_future()
        # Add the future before the check: `remove` deactivates the fault before it releases what is held.
        self._held.add(future)
        try:
            if not self.is_removed and not self._script.lets_go:
                async with time_limit(seconds):
                    await future
        finally:
            self._held.discard(future)

    def release_held(self) -> None:
        """Release every request that the fault holds."""
        for future in list(self._held):
            # A closed loop holds nothing any more.
            with contextlib.suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_finish, future)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        what = [self.api.name if self.api else "any API"]
        if self.error is not None:
            what.append(self.error.name)
        if self.kind is FaultKind.DELAY:
            what.append(f"{self.delay_ms} ms")
        what += [
            f"{name}={value!r}"
            for name, value in (("topic", self.topic), ("client_id", self.client_id))
            if value
        ]
        of = "" if self.times is None else f" of {self.times}"
        return f"{self.kind}({', '.join(what)}) fired {self.fired}{of} times"


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Script:
    """The faults in the order in which they were scripted. Every method may be called from any thread."""

    def __init__(self, changed: threading.Condition) -> None:
        self.active: tuple[Fault, ...] = ()
        # While the broker stops, no request is held.
        self.lets_go = False
        self._changed = changed
        self._all: list[Fault] = []
        self._injected: list[Injection] = []

    @property
    def injected(self) -> tuple[Injection, ...]:
        """What the faults did, oldest first."""
        with self._changed:
            return tuple(self._injected)

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The faults that have not fired as often as scripted."""
        with self._changed:
            return tuple(fault for fault in self._all if fault.is_pending)

    def add(self, fault: Fault) -> Fault:
        """Adds the fault behind the others: the first that matches a request fires."""
        fault._script = self
        with self._changed:
            self._all.append(fault)
            self._refresh()
        return fault

    def remove(self, fault: Fault) -> None:
        """Deactivates the fault and releases the requests that it holds."""
        with self._changed:
            fault.is_removed = True
            self._refresh()
        fault.release_held()

    def clear(self) -> None:
        """Removes every fault and the record of what they did."""
        with self._changed:
            gone, self._all = self._all, []
            for fault in gone:
                fault.is_removed = True
            self._injected.clear()
            self._refresh()
        for fault in gone:
            fault.release_held()

    def release_held(self) -> None:
        """Releases the requests of every fault; from now on none is held, because the broker stops."""
        self.lets_go = True
        with self._changed:
            known = list(self._all)
        for fault in known:
            fault.release_held()

    def fire(self, asked: Asked, *, is_delay: bool) -> Fault | None:
        """The fault that fires on this request, if any; counts and records it."""
        with self._changed:
            for fault in self.active:
                if (fault.kind is FaultKind.DELAY) is is_delay and fault.matches(asked):
                    fault.fired += 1
                    self._injected.append(_injection(fault, asked))
                    self._refresh()
                    self._changed.notify_all()
                    return fault
        return None

    def note(self, injection: Injection) -> None:
        """Records what was done to a connection or request outside of `fire`."""
        with self._changed:
            self._injected.append(injection)

    def wait_fired(self, fault: Fault, times: int, timeout_s: float) -> None:
        """Waits until the fault has fired `times` times; raises `FaultNotFired` after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while fault.fired < times:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise FaultNotFired(f"{fault!r} in {timeout_s} s")

    def _refresh(self) -> None:
        self.active = tuple(fault for fault in self._all if fault.is_active)


def _injection(fault: Fault, asked: Asked) -> Injection:
    api, version, client_id, topics = asked
    named = (fault.topic,) if fault.topic is not None else tuple(sorted(topics))
    return Injection(fault.kind, api.name, version, client_id, named, fault.error, fault.delay_ms)

"""Faults that real clients meet, scripted by the test: errors, cut connections, late and lost responses.

Keeps true: a fault scripted for n requests fires on exactly the next n that match, in the order of their arrival.
            Every other request is answered as if there were no faults. A request meets at most one fault that
            changes its response (the first scripted that matches) and one delay. `injected` lists what was done, in
            order. Removing a fault releases everything that it holds: late responses are sent, and black-holed
            connections are cut.
How:        `handlers` is the broker's table with every handler wrapped. Matching and firing happen on the broker's
            loop; scripting, from any thread, under one lock.
Does not:   affect earlier requests: a fetch that already waits for data is answered without the fault.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from felice.env.begun import begin, ended
from felice.protocol.api import API, Api
from felice.protocol.errors import ErrorCode
from felice.server.context import NO_REPLY, CloseConnection, Connection, RequestContext
from felice.server.handlers.table import OFFERED, Handle, Handlers
from felice.server.process.embedded import EmbeddedBroker
from felice.testing import answers
from felice.testing.fault import Fault, FaultKind, FaultNotFired, Injection, Script

__all__ = ["Fault", "FaultKind", "FaultNotFired", "Faults", "Injection"]

_REASON = "injected by felice.testing"


class _Intercepted(Handlers):
    """The broker's handlers; each is wrapped at its first call."""

    def __init__(
        self, intercept: Callable[[Api, Handle, object, RequestContext], Coroutine[Any, Any, object]]
    ) -> None:
        super().__init__()
        self._intercept = intercept

    def __missing__(self, api_key: int) -> Handle:
        handle = super().__missing__(api_key)
        self[api_key] = wrapped = partial(self._intercept, OFFERED[api_key], handle)
        return wrapped


class Faults:
    """The faults of one broker. They stay across its restarts."""

    def __init__(self) -> None:
        self.handlers: Mapping[int, Handle] = _Intercepted(self._intercept)
        self._script = Script(threading.Condition())
        self._running: EmbeddedBroker | None = None
        self._client_ids: WeakKeyDictionary[Connection, str | None] = WeakKeyDictionary()

    # Scripting

    def fail(
        self,
        api: str | Api,
        error: ErrorCode | str | int,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
        applied: bool = False,
    ) -> Fault:
        """Answer the next `times` requests (None: every request until removed) with an error.

        `api` and `error` are members of `API` and `ErrorCode` or their names; an error also by its number. Raises
        `ValueError` if one does not exist, or if this API cannot be made to fail.

        With `topic`, only partitions of that topic fail; the rest of the request is served. `applied`: the broker
        executes the request before it reports that the request failed.
        """
        found, code = _api(api), _error(error)
        answers.check_can_fail(found)
        return self._add(Fault(FaultKind.FAIL, found, topic, client_id, times, applied=applied, error=code))

    def drop(
        self,
        api: str | Api | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = 1,
        applied: bool = False,
    ) -> Fault:
        """Cut the connection instead of answering. `applied`: the request is executed, and its response is lost."""
        return self._add(Fault(FaultKind.DROP, _any_api(api), topic, client_id, times, applied=applied))

    def delay(
        self,
        api: str | Api | None = None,
        delay_ms: float = 100,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = None,
    ) -> Fault:
        """Execute requests at once and send their responses `delay_ms` later."""
        if delay_ms < 0:
            raise ValueError(f"a delay of {delay_ms} ms is not possible: it must not be negative")
        return self._add(Fault(FaultKind.DELAY, _any_api(api), topic, client_id, times, delay_ms=delay_ms))

    def black_hole(
        self,
        api: str | Api | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
        times: int | None = None,
        applied: bool = False,
    ) -> Fault:
        """Read requests and never answer; the connection stays open until the fault is removed.

        Later requests on the same connection are executed, but their responses wait behind this one.
        """
        return self._add(Fault(FaultKind.BLACK_HOLE, _any_api(api), topic, client_id, times, applied=applied))

    def drop_connections(self, client_id: str | None = None) -> int:
        """Cut every open connection (or those of one client id); returns their number."""
        if self._running is None:
            return 0
        return self._running.run(self._cut(self._running, client_id))

    def clear(self) -> None:
        """Remove every fault and forget what was injected."""
        self._script.clear()

    def _add(self, fault: Fault) -> Fault:
        return self._script.add(fault)

    # What happened

    @property
    def injected(self) -> tuple[Injection, ...]:
        """Which fault met which request, in order."""
        return self._script.injected

    @property
    def pending(self) -> tuple[Fault, ...]:
        """The faults that have not fired as often as scripted (without a number: not once), removed or not."""
        return self._script.pending

    def assert_all_fired(self) -> None:
        """Raise `FaultNotFired` (an `AssertionError`) that names the `pending` faults."""
        left = self.pending
        if left:
            raise FaultNotFired("; ".join(map(repr, left)))

    # Starting and stopping the broker

    def attach(self, running: EmbeddedBroker) -> None:
        """Start to intercept the requests of this broker."""
        self._running = running
        self._script.lets_go = False

    def detach(self) -> None:
        """Release everything that faults hold, so that a stop need not wait for it. The script stays."""
        self._running = None
        self._script.release_held()

    # On the broker's loop

    async def _intercept(self, api: Api, handle: Handle, request: object, context: RequestContext) -> object:
        self._client_ids[context.session] = context.client_id
        if not self._script.active:
            return await handle(request, context)
        topics = answers.topics_of(api, request, context.services)
        asked = (api, context.version, context.client_id, topics)
        changing = self._script.fire(asked, is_delay=False)
        # What the broker does with the request, it does at once; only the answer is late.
        answering = begin(
            handle(request, context) if changing is None else _changed(changing, handle, request, context)
        )
        if answering is NO_REPLY:
            return answering
        delaying = self._script.fire(asked, is_delay=True)
        answer = await ended(answering)
        if delaying is not None:
            with contextlib.suppress(TimeoutError):
                await delaying.hold(delaying.delay_ms / 1000)
        return answer

    async def _cut(self, running: EmbeddedBroker, client_id: str | None) -> int:
        found = [
            session
            for listener in running.broker.listeners
            for session in listener.sessions
            if client_id is None or self._client_ids.get(session) == client_id
        ]
        for session in found:
            self._script.note(Injection(FaultKind.DROP, None, -1, self._client_ids.get(session)))
            session.abort(_REASON)
        return len(found)


async def _changed(fault: Fault, handle: Handle, request: object, context: RequestContext) -> object:
    context = answers.with_own_rows(context)
    if fault.kind is FaultKind.FAIL and not fault.applied:
        return await answers.refused(fault, handle, request, context)
    if not fault.applied:
        if fault.kind is FaultKind.DROP:
            raise CloseConnection(_REASON)
        await _swallow(fault)
    answer = await handle(request, context)
    if answer is NO_REPLY and fault.kind is FaultKind.BLACK_HOLE:
        return NO_REPLY
    if fault.kind is FaultKind.BLACK_HOLE:
        await _swallow(fault)
    if fault.kind is FaultKind.DROP or answer is NO_REPLY:
        raise CloseConnection(_REASON)
    return answers.overwritten(fault, answer, context)


async def _swallow(fault: Fault) -> NoReturn:
    await fault.hold(None)
    raise CloseConnection(_REASON)


def _any_api(api: str | Api | None) -> Api | None:
    return None if api is None else _api(api)


def _api(api: str | Api) -> Api:
    if isinstance(api, Api):
        return api
    wanted = api.replace("_", "").lower()
    for found in API.by_key.values():
        if found.name.lower() == wanted:
            if found.key not in OFFERED:
                raise ValueError(f"the broker does not offer {found.name}")
            return found
    names = ", ".join(sorted(API.by_key[key].name for key in OFFERED))
    raise ValueError(f"there is no API {api!r}; the broker offers {names}")


def _error(error: ErrorCode | str | int) -> ErrorCode:
    try:
        code = ErrorCode[error.upper()] if isinstance(error, str) else ErrorCode(error)
    except (KeyError, ValueError):
        raise ValueError(f"there is no error {error!r} in Kafka's protocol") from None
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return code

"""Handlers are found by the names of their modules; this is what a type checker would say of it."""

from __future__ import annotations

import inspect
import sys
from importlib.util import find_spec

import pytest

from felice.protocol.api import API, Api
from felice.server.handlers import heartbeat
from felice.server.handlers.table import OFFERED, WITHOUT_HANDLER, GuardedHandlers, Handlers
from felice.server.security.access_control import in_handler, open_to_all


@pytest.mark.parametrize("api", OFFERED.values(), ids=lambda api: api.name)
def test_every_api_offered_has_a_handler_of_its_own_request(api: Api) -> None:
    handle = Handlers()[api.key]
    request, context = inspect.signature(handle).parameters.values()
    assert request.annotation == api.request.__name__
    assert context.annotation == "RequestContext"
    assert inspect.iscoroutinefunction(handle)
    assert api.response.__name__ in inspect.signature(handle).return_annotation


@pytest.mark.parametrize("api", OFFERED.values(), ids=lambda api: api.name)
def test_every_handler_has_a_guard_beside_it(api: Api) -> None:
    handle = Handlers()[api.key]
    guarded = GuardedHandlers({api.key: handle})
    assert guarded[api.key] is guarded[api.key]
    is_unguarded = sys.modules[handle.__module__].guard in (in_handler, open_to_all)  # type: ignore[attr-defined]
    assert (guarded[api.key] is handle) == is_unguarded


def test_an_api_is_offered_as_soon_as_it_has_a_handler() -> None:
    handled = {api for api in API.by_key.values() if find_spec(f"felice.server.handlers.{api.module}")}
    assert handled == set(OFFERED.values())
    assert handled | WITHOUT_HANDLER == set(API.by_key.values())


def test_a_handler_without_a_guard_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(heartbeat, "guard")
    with pytest.raises(AttributeError):
        GuardedHandlers(Handlers())[API.HEARTBEAT.key]


def test_a_handler_is_looked_for_once() -> None:
    handlers = Handlers()
    assert not handlers
    handle = handlers[18]
    assert handlers == {18: handle}


def test_an_api_that_is_not_offered_has_no_handler() -> None:
    with pytest.raises(KeyError):
        Handlers()[7]

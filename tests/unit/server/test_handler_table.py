"""The table of handlers names modules by text; this is what a type checker would say of it."""

from __future__ import annotations

import inspect

import pytest

from felice.protocol.api import Api
from felice.server.handlers.table import MODULES, OFFERED, Handlers


@pytest.mark.parametrize("api", MODULES, ids=lambda api: api.name)
def test_every_api_offered_has_a_handler_of_its_own_request(api: Api) -> None:
    handle = Handlers()[api.key]
    request, context = inspect.signature(handle).parameters.values()
    assert request.annotation == api.request.__name__
    assert context.annotation == "RequestContext"
    assert inspect.iscoroutinefunction(handle)
    assert api.response.__name__ in inspect.signature(handle).return_annotation


def test_a_handler_is_looked_for_once() -> None:
    handlers = Handlers()
    assert not handlers
    handle = handlers[18]
    assert handlers == {18: handle}
    assert OFFERED.keys() == {api.key for api in MODULES}


def test_an_api_that_is_not_offered_has_no_handler() -> None:
    with pytest.raises(KeyError):
        Handlers()[7]

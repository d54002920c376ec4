"""The facts of a client by which client metrics resources can select it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felice.server.context import RequestContext


def selectors_of(context: RequestContext) -> dict[str, str]:
    """The selectors of the client of a request, without its instance id."""
    software, _, version = context.session.client_software.partition(" ")
    return {
        "client_id": context.client_id or "",
        "client_software_name": software,
        "client_software_version": version,
        "client_source_address": context.session.peer,
        "client_source_port": context.session.address.rpartition(":")[2],
    }

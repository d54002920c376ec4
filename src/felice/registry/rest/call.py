"""One request of the REST API: its parameters, body and user, and what it needs of the registry."""

from __future__ import annotations

import json
import re
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from felice.registry import subjects
from felice.registry.errors import bad_request, forbidden
from felice.registry.operations.listing import Deletion, Page
from felice.registry.requests import SchemaRequest, schema_request
from felice.registry.rest.media import IN, OUT
from felice.registry.rights import GLOBAL, Operation, Rights
from felice.registry.rules import Json
from felice.registry.service import Registry
from felice.registry.state import State, Version
from felice.registry.subjects import within
from felice.web.media import accepted, json_body

_TRUE = ("true", "")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
ANONYMOUS = "ANONYMOUS"


class Call:
    """A request, and the registry that answers it. `rights` None allows everything."""

    def __init__(self, request: Request, registry: Registry, rights: Rights | None) -> None:
        self.request = request
        self.registry = registry
        self._rights = rights

    @property
    def state(self) -> State:
        """The registry's state."""
        return self.registry.state

    # Parameters -------------------------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """A segment of the path, decoded."""
        return str(self.request.path_params[name])

    def text(self, name: str) -> str | None:
        """A parameter of the query."""
        return self.request.query_params.get(name)

    def flag(self, name: str) -> bool:
        """Whether a parameter of the query is `true` (or has no value)."""
        value = self.request.query_params.get(name)
        return value is not None and value.lower() in _TRUE

    def number(self, name: str, default: int) -> int:
        """A parameter of the query as a number. Raises `RegistryError` (400)."""
        value = self.request.query_params.get(name)
        if value is None:
            return default
        if _NUMBER.fullmatch(value) is None or not -(1 << 31) <= int(value) < 1 << 31:
            raise bad_request(f"the parameter {name} must be a number of 32 bits, got {value!r:.40}")
        return int(value)

    @property
    def page(self) -> Page:
        """The page of a list."""
        return Page(self.number("offset", 0), self.number("limit", -1))

    @property
    def deletion(self) -> Deletion:
        """Which entries of a list, by the parameters `deleted` and `deletedOnly`."""
        return Deletion(self.flag("deleted"), self.flag("deletedOnly"))

    # Subjects ---------------------------------------------------------------------------------------------------

    @property
    def context(self) -> str:
        """The prefix of subjects in the context of the path, `/contexts/{context}/…`; empty for the default context."""
        named = self.request.path_params.get("context")
        return "" if named is None else subjects.joined(subjects.context_name(named), "")

    def named_subject(self) -> str:
        """The subject of the path, qualified, as the client names it."""
        return self._qualified(self.path("subject"))

    def subject(self) -> str:
        """The subject of the path, or the one for which it is an alias."""
        return self.state.alias_target(self.named_subject())

    def new_subject(self) -> str:
        """The subject of the path, which may be new. Raises `RegistryError` (42208) for an impossible name."""
        name = self.subject()
        subjects.check(name)
        return name

    def query_subject(self) -> str | None:
        """The subject of the query, qualified; with a context in the path and no subject, that context."""
        named = self.text("subject")
        if not named:
            return self.context or None
        return self.state.alias_target(self._qualified(named))

    def _qualified(self, name: str) -> str:
        return within(self.context, name)

    # Rights -----------------------------------------------------------------------------------------------------

    @property
    def user(self) -> str:
        """The name of the user that logged in."""
        found = self.request.scope.get("user")
        return ANONYMOUS if found is None else str(found.display_name)

    @property
    def has_rights(self) -> bool:
        """Whether there are rules: then lists have only what the user may read."""
        return self._rights is not None

    def may(self, operation: Operation, subject: str | None) -> bool:
        """Whether the user may do this; None: what belongs to no subject."""
        if self._rights is None:
            return True
        return self._rights.allow(self.user, operation, GLOBAL if subject is None else subject)

    def require(self, operation: Operation, subject: str | None) -> None:
        """Raises `RegistryError` (40301) unless the user may do this."""
        if not self.may(operation, subject):
            where = "global settings" if subject is None else f"subject {subject}"
            raise forbidden(f"User {self.user} is not allowed {operation.value} on {where}")

    def readable(self, version: Version) -> Version:
        """The version, if the user may read its subject."""
        self.require(Operation.READ, version.subject)
        return version

    # Bodies -----------------------------------------------------------------------------------------------------

    async def json(self) -> Json:
        """The JSON of the body.

        Raises `HTTPException` (415) for a page of another site: a browser asks for permission before it sends JSON for
        such a page, but not before it sends a body without a content type.
        """
        headers = self.request.headers
        if "origin" in headers and "content-type" not in headers:
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        return await json_body(self.request, IN)

    async def schema(self, subject: str) -> SchemaRequest:
        """The schema in the body. The user must be allowed to read the subjects to which it refers."""
        found = schema_request(await self.json())
        for reference in found.references:
            self.require(Operation.READ, within(subject, reference.subject))
        return found

    def answer(self, content: Json) -> Response:
        """The answer with this JSON, in the content type that the client prefers."""
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return self.text_answer(text)

    def text_answer(self, text: str) -> Response:
        """The answer with this text."""
        return Response(text.encode("utf-8", "replace"), media_type=accepted(self.request, OUT))

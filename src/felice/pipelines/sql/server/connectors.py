"""Statements about connectors: CREATE, DROP, DESCRIBE and SHOW, which a Connect worker answers.

These statements are not written to the command topic: the worker keeps its connectors, and every server asks the same
worker.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from felice.pipelines.java.texts import number_text
from felice.pipelines.sql.catalogue import near
from felice.pipelines.sql.server import entities
from felice.pipelines.sql.server.answers import Answer
from felice.pipelines.sql.server.connect_worker import ConnectWorker, WorkerAddress, WorkerFailed
from felice.pipelines.sql.server.failures import Entity, StatementFailed
from felice.pipelines.sql.syntax.errors import SqlError, SqlSyntaxError
from felice.pipelines.sql.syntax.tree import CreateConnector, Describe, Drop, Literal, Show, Statement
from felice.pipelines.sql.syntax.writer import name_text, string_text

_CLASS = "connector.class"
_KINDS = {"CONNECTORS": None, "SOURCE CONNECTORS": "source", "SINK CONNECTORS": "sink"}
_RUNNING = "RUNNING"
MASK = "[string]"
_ABOUT_CONNECTORS = re.compile(r"\bCONNECTOR\b", re.IGNORECASE)
"""Each connector has the option connector.class, so a text in which a key word is wrong is found as well."""
_VALUES = re.compile(r"['\"(].*", re.DOTALL)
"""All of the text from there on: in a text that is wrong, quotes need not be in pairs."""


class Connectors:
    """Answers statements about connectors. `described` gives the sources over these topics."""

    def __init__(self, address: WorkerAddress, described: Callable[[frozenset[str]], list[Entity]]) -> None:
        self._worker = ConnectWorker(address)
        self._described = described

    async def close(self) -> None:
        """Close the connections to the worker."""
        await self._worker.close()

    def of(self, given: Statement) -> Answer | None:
        """The function that answers a statement; None for one that is not about connectors."""
        match given:
            case CreateConnector():
                return _answered(self._create, given)
            case Drop(kind="CONNECTOR"):
                return _answered(self._drop, given)
            case Describe(kind="CONNECTOR"):
                return _answered(self._describe, given)
            case Show(what="CONNECTOR PLUGINS"):
                return partial(_listed, self._plugins)
            case Show(what=what) if what in _KINDS:
                return partial(_listed, partial(self._connectors, _KINDS[what]))
        return None

    async def _create(self, given: CreateConnector, text: str) -> Entity:
        known = next((one for one in await self._names() if one.upper() == given.name.upper()), None)
        if known is not None:
            told = f"Connector {known} already exists"
            if given.if_not_exists:
                return entities.warning(text, told)
            raise WorkerFailed(told, HTTPStatus.CONFLICT)
        config = {name: _text(literal) for name, literal in given.properties} | {"name": given.name}
        path = "/connectors"
        info = await self._worker.ask("POST", path, {"name": given.name, "config": config})
        if not isinstance(info, dict):
            raise self._worker.strange(path)
        made = info.get("type")
        warnings = []
        if made in ("source", "sink") and made != given.kind.lower():
            warnings.append({"message": f"{given.name} is a {made} connector"})
        return entities.of_kind("connector_info", text, info=info) | {"warnings": warnings}

    async def _drop(self, given: Drop, text: str) -> Entity:
        try:
            await self._worker.ask("DELETE", _path(given.name))
        except WorkerFailed as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            if not given.if_exists:
                raise await self._unknown(given.name) from None
            return entities.warning(text, f"Connector {name_text(given.name)} does not exist")
        return entities.of_kind("drop_connector", text, connectorName=given.name)

    async def _describe(self, given: Describe, text: str) -> Entity:
        name = str(given.name)
        path = _path(name)
        try:
            info = await self._worker.ask("GET", path)
        except WorkerFailed as error:
            raise await self._unknown(name) if error.status == HTTPStatus.NOT_FOUND else error from None
        status = await self._worker.ask("GET", f"{path}/status")
        if not (isinstance(info, dict) and isinstance(info.get("config"), dict) and isinstance(status, dict)):
            raise self._worker.strange(path)
        topics, warnings = await self._topics(name)
        sources = await asyncio.to_thread(self._described, frozenset(topics))
        return entities.of_kind(
            "connector_description",
            text,
            connectorClass=info["config"].get(_CLASS),
            status=status,
            sources=sources,
            topics=topics,
        ) | {"warnings": warnings}

    async def _topics(self, name: str) -> tuple[list[str], list[Entity]]:
        """The topics that a connector has used, and a warning if the worker does not say."""
        path = f"{_path(name)}/topics"
        try:
            found = await self._worker.ask("GET", path)
        except WorkerFailed as error:
            return [], [{"message": f"The topics of the connector are not known: {error}"}]
        by_name = found.get(name) if isinstance(found, dict) else None
        topics = by_name.get("topics") if isinstance(by_name, dict) else None
        return [str(one) for one in topics] if isinstance(topics, list) else [], []

    async def _unknown(self, name: str) -> WorkerFailed:
        hint = near(name, await self._names())
        return WorkerFailed(f"there is no connector {name_text(name)}{hint}", HTTPStatus.NOT_FOUND)

    async def _names(self) -> list[str]:
        path = "/connectors"
        found = await self._worker.ask("GET", path)
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self._worker.strange(path)
        return found

    async def _connectors(self, kind: str | None, text: str) -> Entity:
        path = "/connectors?expand=info&expand=status"
        found = await self._worker.ask("GET", path)
        if not isinstance(found, dict):
            raise self._worker.strange(path)
        shown = [_shown(name, one) for name, one in sorted(found.items())]
        if kind is not None:
            shown = [one for one in shown if one["type"] == kind]
        return entities.of_kind("connector_list", text, connectors=shown)

    async def _plugins(self, text: str) -> Entity:
        path = "/connector-plugins"
        found = await self._worker.ask("GET", path)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._worker.strange(path)
        plugins = [
            {"className": one.get("class"), "type": one.get("type"), "version": one.get("version")}
            for one in found
        ]
        return entities.of_kind("connector_plugins_list", text, connectorPlugins=plugins)


def _answered(answer: Callable[[Any, str], Any], given: Statement) -> Answer:
    """The answer to a statement about one connector: what fails is the error of the request, as in ksqlDB."""

    async def answered(text: str, settings: Mapping[str, str]) -> Entity:
        try:
            found: Entity = await answer(given, text)
        except WorkerFailed as error:
            raise StatementFailed(
                str(error), text, code=int(error.status) * 100, status=int(error.status)
            ) from None
        return found

    return answered


async def _listed(answer: Callable[[str], Any], text: str, settings: Mapping[str, str]) -> Entity:
    """The answer to SHOW: what fails is an entity, as in ksqlDB."""
    try:
        found: Entity = await answer(text)
    except WorkerFailed as error:
        return entities.of_kind("error_entity", text, errorMessage=str(error))
    return found


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _text(literal: Literal) -> str | None:
    value = literal.value
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return number_text(value) if isinstance(value, float) else str(value)


def _shown(name: str, found: object) -> Entity:
    """A connector in a list. What the worker does not tell is null."""
    both = found if isinstance(found, dict) else {}
    info, status = (one if isinstance(one, dict) else {} for one in (both.get("info"), both.get("status")))
    config = info.get("config")
    return {
        "name": name,
        "type": info.get("type") or status.get("type") or "unknown",
        "className": config.get(_CLASS) if isinstance(config, dict) else None,
        "state": _state(status),
    }


def _state(status: Mapping[str, Any]) -> str | None:
    connector, tasks = status.get("connector"), status.get("tasks")
    state = connector.get("state") if isinstance(connector, dict) else None
    if state != _RUNNING or not isinstance(tasks, list):
        return state
    running = sum(isinstance(one, dict) and one.get("state") == _RUNNING for one in tasks)
    summary = "WARNING" if tasks and not running else _RUNNING
    return f"{summary} ({running}/{len(tasks)} tasks RUNNING)"


def unparsed(text: str) -> str:
    """A text that may be no statement, as errors show it: if it is about connectors, up to its first value."""
    return text if _ABOUT_CONNECTORS.search(text) is None else _VALUES.sub(f"'{MASK}'", text)


def refusal(error: SqlError, text: str) -> SqlError:
    """The error of a text that is no statement, without parts of a text about connectors."""
    if isinstance(error, SqlSyntaxError) and unparsed(text) != text:
        return error.without_text()
    return error


def masked(given: Statement, text: str) -> str:
    """The text of a statement as answers and errors show it: the options of a connector may be passwords."""
    if not isinstance(given, CreateConnector):
        return text
    options = ", ".join(
        f"{string_text(name)}={string_text(str(literal.value) if name == _CLASS else MASK)}"
        for name, literal in given.properties
    )
    condition = "IF NOT EXISTS " if given.if_not_exists else ""
    return f"CREATE {given.kind} CONNECTOR {condition}{name_text(given.name)} WITH ({options})"

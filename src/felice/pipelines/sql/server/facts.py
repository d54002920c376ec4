"""The facts of the cluster, the registry and the server that an analysis used, kept with its statement.

Keeps true: when a statement is analysed again, after a restart or by another server, the analysis gets the answers of
            the first analysis, even if topics, schemas or the server's settings have changed since. So all servers
            have the same catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.declarations import Surroundings
from felice.pipelines.sql.analysis.properties import OF_CATALOGUE
from felice.pipelines.sql.rows import Columns, FormatDescription
from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.types import type_at
from felice.pipelines.sql.types import resolved, text_of


@dataclass(frozen=True, slots=True)
class Facts:
    """Partitions by topic, and columns by subject. None: the topic or the subject does not exist."""

    partitions: Mapping[str, int | None] = field(default_factory=dict)
    schemas: Mapping[str, Columns | None] = field(default_factory=dict)
    settings: Mapping[str, str] | None = None
    """The settings of the server that decide what a stream or table is. None: an older server wrote the command."""

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "partitions": dict(self.partitions),
            "schemas": {
                subject: None if columns is None else [[name, text_of(type_)] for name, type_ in columns]
                for subject, columns in self.schemas.items()
            },
        } | ({} if self.settings is None else {"settings": dict(self.settings)})

    @staticmethod
    def of(document: Mapping[str, Any]) -> Facts:
        """From JSON. Raises `SqlError`, KeyError, TypeError or ValueError for what `document` does not make."""
        settings = document.get("settings")  # Older servers kept none.
        return Facts(
            dict(document["partitions"]),
            {
                subject: None
                if columns is None
                else tuple((str(name), resolved(type_at(Cursor(text)), {})) for name, text in columns)
                for subject, columns in document["schemas"].items()
            },
            None if settings is None else {str(name): str(value) for name, value in settings.items()},
        )


class Noted:
    """Surroundings that record each of their answers."""

    def __init__(self, asked: Surroundings) -> None:
        self._asked = asked
        self._partitions: dict[str, int | None] = {}
        self._schemas: dict[str, Columns | None] = {}
        self._settings: dict[str, str] | None = None

    @property
    def facts(self) -> Facts:
        """What was told until now."""
        return Facts(dict(self._partitions), dict(self._schemas), self._settings)

    def settings(self, of_server: Mapping[str, str]) -> Mapping[str, str]:
        """Those of the server."""
        self._settings = {name: of_server[name] for name in OF_CATALOGUE if name in of_server}
        return of_server

    def partitions(self, topic: str, wanted: int | None) -> int | None:
        """Those of the topic."""
        found = self._asked.partitions(topic, wanted)
        self._partitions[topic] = found
        return found

    def schema(self, topic: str, is_key: bool, given: FormatDescription) -> Columns | None:
        """The columns of a registered schema."""
        found = self._asked.schema(topic, is_key, given)
        self._schemas[_subject(topic, is_key, given)] = found
        return found


class Remembered:
    """Surroundings that answer from facts, and ask neither brokers nor the registry."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def settings(self, of_server: Mapping[str, str]) -> Mapping[str, str]:
        """Those of the server, as they were where they decide what a stream or table is."""
        if self._facts.settings is None:
            return of_server
        others = {name: value for name, value in of_server.items() if name not in OF_CATALOGUE}
        return {**others, **self._facts.settings}

    def partitions(self, topic: str, wanted: int | None) -> int | None:
        """Those of the topic."""
        return self._facts.partitions.get(topic, wanted)

    def schema(self, topic: str, is_key: bool, given: FormatDescription) -> Columns | None:
        """The columns of a registered schema. Raises ValueError for one that was not asked for."""
        subject = _subject(topic, is_key, given)
        if subject not in self._facts.schemas:
            raise ValueError(f"the statement was kept without the schema of {subject}")
        return self._facts.schemas[subject]


def _subject(topic: str, is_key: bool, given: FormatDescription) -> str:
    return f"{topic}-{'key' if is_key else 'value'}:{given.schema_id or ''}"

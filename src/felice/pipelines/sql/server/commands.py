"""The records of the command topic: the statements that changed the catalogue, in their order.

Keeps true: each record has a key of its own, so that compaction removes none. A statement is kept with the settings
            and the facts with which it was accepted (docs/formats.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from felice.dataclass import dataclass
from felice.pipelines.sql.rows.plain import json_text
from felice.pipelines.sql.server.facts import Facts
from felice.pipelines.sql.syntax.errors import SqlError

VERSION = 1


class DamagedCommand(Exception):
    """A record that is no command. The text says why."""


@dataclass(frozen=True, slots=True)
class Command:
    """One statement. `id` is what ksqlDB calls the command's id, such as `stream/ORDERS/create`; `number` counts the
    commands of the topic.
    """

    id: str
    number: int
    statement: str
    settings: Mapping[str, str]
    facts: Facts

    def encode(self) -> tuple[bytes, bytes]:
        """Key and value of the record."""
        key = {"id": self.id, "number": self.number}
        value = {
            "version": VERSION,
            "statement": self.statement,
            "settings": dict(self.settings),
            "facts": self.facts.document(),
        }
        return json_text(key).encode(), json_text(value).encode()

    @staticmethod
    def decode(key: bytes | None, value: bytes | None) -> Command:
        """The command of a record. Raises `DamagedCommand`."""
        if key is None or value is None:
            raise DamagedCommand("it has no key or no value")
        try:
            name, written = json.loads(key), json.loads(value)
            if written["version"] > VERSION:
                raise DamagedCommand(
                    f"a newer server wrote it, with version {written['version']}; this one reads versions up to "
                    f"{VERSION}"
                )
            return Command(
                str(name["id"]),
                int(name["number"]),
                str(written["statement"]),
                {str(one): str(setting) for one, setting in written["settings"].items()},
                Facts.of(written["facts"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SqlError) as error:
            raise DamagedCommand(f"{type(error).__name__}: {error}") from None

"""What may be typed next: words of the language, and the names that the server has.

Keeps true: a server that answers late or not at all delays nothing: its names are those that it told last.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from felice.dataclass import dataclass
from felice.pipelines.sql.shell.client import Entity, Server, ShellError
from felice.pipelines.sql.shell.parts import COMMANDS, parts_of
from felice.pipelines.sql.shell.tables import items_of, of
from felice.pipelines.sql.syntax.cursor import RESERVED

_OTHER_WORDS = """
    ADD ALTER ARRAY ASSERT BEGINNING BIGINT BOOLEAN BYTES CHANGES COLUMN DATE DAY DAYS DECIMAL DEFINE DOUBLE EMIT
    EXTENDED FINAL FUNCTION FUNCTIONS GRACE HEADERS HOPPING HOUR HOURS IF INT INTERVAL KEY MAP MINUTE MINUTES PARTITION
    PAUSE PERIOD PLUGINS PRIMARY PRINT REPLACE RESUME RETENTION SAMPLE SCHEMA SECOND SECONDS SESSION SET SHOW SINK SIZE
    SOURCE STRING STRUCT SUBJECT SYSTEM TABLES TIME TIMEOUT TIMESTAMP TUMBLING TYPE TYPES UNDEFINE VARCHAR VARIABLES
"""
_FIRST = """
    ALTER ASSERT CREATE DEFINE DESCRIBE DROP EXPLAIN INSERT LIST PAUSE PRINT RESUME SELECT SET SHOW TERMINATE UNDEFINE
    UNSET
"""
WORDS = tuple(sorted({*RESERVED, *_OTHER_WORDS.split()}))
"""The words of the language."""
_FIRST_WORDS = tuple(_FIRST.split())
_PLAIN_NAME = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)
_LAST_WORD = re.compile(r"`[^`]*\Z|[\w@]+\Z", re.ASCII)
_PRINT = re.compile(r"PRINT\s+\S*\Z", re.IGNORECASE)
_CONNECTOR = re.compile(
    r"(?:DESCRIBE\s+CONNECTOR|DROP\s+CONNECTOR(?:\s+IF\s+EXISTS)?)\s+(?:`[^`]*|[\w@]*)\Z",
    re.IGNORECASE | re.ASCII,
)
MOST = 500
"""How many suggestions are made."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the server has."""

    sources: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    connectors: tuple[str, ...] = ()


def suggestions(before: str, names: Names) -> list[tuple[str, int]]:
    """What the text before the cursor may become: words, and how many characters each replaces."""
    statement = parts_of(before)[1] if before.strip() else ""
    found = _LAST_WORD.search(statement)
    begun = found[0] if found else ""
    if statement[: len(statement) - len(begun)].count("'") % 2 == 1:
        return []
    if _PRINT.fullmatch(statement.lstrip()):
        return _matching(begun, [_quoted(name, "'") for name in names.topics])
    if _CONNECTOR.fullmatch(statement.lstrip()):
        words = ["IF EXISTS"] if statement.lstrip()[:4].upper() == "DROP" else []
        return _matching(begun, [*(_quoted(name, "`") for name in names.connectors), *_like(begun, words)])
    if not statement.strip() or statement.strip() == begun:
        return _matching(begun, [*_like(begun, _FIRST_WORDS), *COMMANDS])
    functions = [f"{name}(" for name in names.functions]
    named = [_quoted(name, "`") for name in (*names.sources, *names.columns)]
    return _matching(begun, [*named, *_like(begun, [*functions, *WORDS])])


def _like(begun: str, words: Iterable[str]) -> Iterator[str]:
    """The words in small letters if the user types so."""
    is_small = begun.islower()
    return (word.lower() if is_small else word for word in words)


def _matching(begun: str, words: Iterable[str]) -> list[tuple[str, int]]:
    wanted = begun.strip("`'").upper()
    found = dict.fromkeys(word for word in words if word.strip("`'").upper().startswith(wanted))
    return [(word, len(begun)) for word in found][:MOST]


def _quoted(name: str, quote: str) -> str:
    is_plain = quote == "`" and _PLAIN_NAME.fullmatch(name) and name not in RESERVED
    return name if is_plain else quote + name.replace(quote, quote * 2) + quote


class KnownNames:
    """The names that a server told last. `refresh` asks again, on a thread of its own."""

    def __init__(self, server: Callable[[], Server]) -> None:
        self._server = server
        self.names = Names()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def refresh(self) -> None:
        """Asks for the names soon."""
        self._wanted.set()
        if self._thread is None:
            # The end of the shell does not wait for an answer.
            self._thread = threading.Thread(target=self._follow, name="felice-sql-names", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            # They only help: a failure, such as that of a connection which the shell closes, is nobody's business.
            with suppress(Exception):
                server = self._server()
                self.names = replace(names_of(server), connectors=self.names.connectors)
                # Another program answers for them, which may be slow.
                self.names = replace(self.names, connectors=connectors_of(server))


def names_of(server: Server) -> Names:
    """The names that a server has, as far as it tells them."""
    sources = [
        *_told(server, "LIST STREAMS", "streams"),
        *_told(server, "LIST TABLES", "tables"),
    ]
    described = [
        *_told(server, "DESCRIBE STREAMS", "sourceDescriptions"),
        *_told(server, "DESCRIBE TABLES", "sourceDescriptions"),
    ]
    return Names(
        _names(sources),
        _names(column for one in described for column in items_of(one, "fields")),
        _names(_told(server, "LIST FUNCTIONS", "functions")),
        _names(_told(server, "LIST TOPICS", "topics")),
    )


def connectors_of(server: Server) -> tuple[str, ...]:
    """The names of connectors."""
    return _names(_told(server, "LIST CONNECTORS", "connectors"))


def _told(server: Server, statement: str, name: str) -> list[Entity]:
    try:
        return [one for entity in server.run(statement, {}) for one in items_of(entity, name)]
    except ShellError:
        return []


def _names(rows: Iterable[Entity]) -> tuple[str, ...]:
    found: Collection[str] = {of(one, "name") for one in rows}
    return tuple(sorted(filter(None, found)))

"""JAAS configurations as text: the values of `sasl.jaas.config`.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret";

Exactly one login module, with its options. Values may be quoted; a backslash in quotes escapes the next character.
Errors never repeat a value, because values are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<word>[^\s"'=;]+)|(?P<sign>[=;]))""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class BadJaas(ValueError):
    """A JAAS configuration that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class JaasModule:
    """A login module and its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the module without its package."""
        return self.module.rpartition(".")[2]


def parse_jaas(text: str) -> JaasModule:
    """Parses a text with one login module. Raises `BadJaas`."""
    tokens = list(_tokens(text))
    if not tokens or tokens[-1] != (";", True):
        raise BadJaas("expected one login module with its options, ended by a semicolon")
    if (";", True) in tokens[:-1]:
        raise BadJaas("expected one login module, found several")
    if len(tokens) < 3 or tokens[1][0].lower() not in _FLAGS:
        raise BadJaas("expected the class of a login module and the word required")
    return JaasModule(tokens[0][0], _options(tokens[2:-1]))


def _options(tokens: list[tuple[str, bool]]) -> dict[str, str]:
    options = {}
    for index in range(0, len(tokens), 3):
        group = tokens[index : index + 3]
        if len(group) < 3 or group[1] != ("=", True) or group[0][1] or group[2][1]:
            raise BadJaas(f"expected name=value at option {index // 3 + 1}")
        options[group[0][0]] = group[2][0]
    return options


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yields the tokens; true for a sign."""
    text = text.strip()
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise BadJaas("a quotation mark is not closed")
        position = found.end()
        if found["quoted"] is not None:
            yield _unescape(found["quoted"][1:-1]), False
        else:
            yield (found["word"], False) if found["word"] is not None else (found["sign"], True)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)

"""JAAS configurations as text: the values of `sasl.jaas.config`, and JAAS files.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret";

A value of `sasl.jaas.config` is exactly one login module, with its options. A JAAS file has named sections of login
modules, and may have comments as in Java:

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="secret";
    };

Values may be quoted; a backslash in quotes escapes the next character. Errors never repeat a value, because values are
passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from felice.dataclass import dataclass

_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = r"""(?s)\s*(?:(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<word>[^\s"'=;]+)|(?P<sign>[=;]))"""
_FILE_TOKEN = (
    r"""(?s)(?:\s|//[^\n]*|/\*.*?\*/)*"""
    r"""(?:(?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<word>(?:(?!//|/\*)[^\s"'=;{}])+)|(?P<sign>[=;{}])|\Z)"""
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_Token = tuple[str, bool]
"""The text of a token, and whether it is a sign."""
_END = (";", True)


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
    tokens = list(_tokens(text, _TOKEN))
    if not tokens or tokens[-1] != _END:
        raise BadJaas("expected one login module with its options, ended by a semicolon")
    if _END in tokens[:-1]:
        raise BadJaas("expected one login module, found several")
    return _module(tokens[:-1])


def format_jaas(module: JaasModule) -> str:
    """The text from which `parse_jaas` reads this module."""
    options = "".join(f" {name}={_quoted(value)}" for name, value in module.options.items())
    return f"{module.module} required{options};"


def parse_jaas_file(text: str) -> dict[str, tuple[JaasModule, ...]]:
    """Parses the text of a JAAS file: the login modules of each section. Raises `BadJaas`."""
    tokens = list(_tokens(text, _FILE_TOKEN))
    sections: dict[str, tuple[JaasModule, ...]] = {}
    while tokens:
        name, is_sign = tokens[0]
        if is_sign or tokens[1:2] != [("{", True)] or ("}", True) not in tokens:
            raise BadJaas(f"expected NAME {{ login modules }}; as section {len(sections) + 1}")
        end = tokens.index(("}", True))
        if tokens[end + 1 : end + 2] != [_END]:
            raise BadJaas(f"section {name} is not ended by a semicolon")
        if name in sections:
            raise BadJaas(f"there are several sections {name}")
        sections[name] = _modules(tokens[2:end])
        tokens = tokens[end + 2 :]
    return sections


def _modules(tokens: list[_Token]) -> tuple[JaasModule, ...]:
    modules = []
    while tokens:
        if _END not in tokens:
            raise BadJaas("a login module is not ended by a semicolon")
        end = tokens.index(_END)
        modules.append(_module(tokens[:end]))
        tokens = tokens[end + 1 :]
    return tuple(modules)


def _module(tokens: list[_Token]) -> JaasModule:
    if len(tokens) < 2 or tokens[1][0].lower() not in _FLAGS:
        raise BadJaas("expected the class of a login module and the word required")
    return JaasModule(tokens[0][0], _options(tokens[2:]))


def _options(tokens: list[_Token]) -> dict[str, str]:
    options = {}
    for index in range(0, len(tokens), 3):
        group = tokens[index : index + 3]
        if len(group) < 3 or group[1] != ("=", True) or group[0][1] or group[2][1]:
            raise BadJaas(f"expected name=value at option {index // 3 + 1}")
        options[group[0][0]] = group[2][0]
    return options


def _tokens(text: str, pattern: str) -> Iterator[_Token]:
    text, token = text.strip(), re.compile(pattern)
    position = 0
    while position < len(text):
        found = token.match(text, position)
        if found is None:
            raise BadJaas("a quotation mark or a comment is not closed")
        position = found.end()
        if found["quoted"] is not None:
            yield _unescape(found["quoted"][1:-1]), False
        elif found["word"] or found["sign"]:
            yield found["word"] or found["sign"], found["word"] is None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f'"{escaped}"'


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text, flags=re.DOTALL)

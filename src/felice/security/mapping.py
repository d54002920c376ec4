"""From the subject of a client's certificate to the name of a principal: `ssl.principal.mapping.rules`.

Rules are separated by commas. `RULE:pattern/replacement/` applies to a subject that the pattern matches whole; `$1` in
the replacement is the first group, and an `L` or `U` at the end turns the result to lower or upper case. `DEFAULT` is
the subject itself. The first rule that applies counts; without one there is no principal.

Patterns come from the broker's own configuration. Their syntax is Python's, which agrees with Java's for such patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from felice.dataclass import dataclass

_DEFAULT = "DEFAULT"
# A slash inside of a pattern or a replacement is written as \/.
_RULE = r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)(?=\s*(?:,|$))"


class BadRule(ValueError):
    """A mapping rule that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; `DEFAULT` has no pattern."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The name for a subject, or None if the rule does not apply to it."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        name = found.expand(self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parses `ssl.principal.mapping.rules`. Raises `BadRule`."""
    return tuple(_rules(text.strip()))


def name_of(subject: str, rules: tuple[Rule, ...]) -> str | None:
    """The principal's name for a subject, or None if no rule applies."""
    return next((name for rule in rules if (name := rule.apply(subject)) is not None), None)


def _rules(text: str) -> Iterator[Rule]:
    while text:
        found = re.match(_RULE, text)
        if found is not None:
            yield _rule(*found.groups())
            rest = text[found.end() :]
        elif re.match(rf"{_DEFAULT}\s*(,|$)", text):
            yield Rule(None)
            rest = text.removeprefix(_DEFAULT)
        else:
            raise BadRule(f"expected RULE:pattern/replacement/ or DEFAULT, found {text[:100]}")
        text = rest.strip().removeprefix(",").strip()


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(pattern.replace("\\/", "/"))
        template = _python_template(replacement.replace("\\/", "/"))
        _check_groups(compiled, replacement)
    except (re.error, IndexError) as error:
        raise BadRule(f"RULE:{pattern}/{replacement}/ is not a valid rule: {error}") from None
    return Rule(compiled, template, case)


def _python_template(replacement: str) -> str:
    r"""Java's `$1` as Python's `\g<1>`; Java's escaped characters as themselves."""

    def convert(found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("$"):
            return f"\\g<{text[1:]}>"
        return "\\\\" if text[1:] in ("\\", "") else text[1:]

    return re.sub(r"\$\d|\\.?", convert, replacement)


def _check_groups(pattern: re.Pattern[str], replacement: str) -> None:
    highest = max((int(number) for number in re.findall(r"(?<!\\)\$(\d)", replacement)), default=0)
    if highest > pattern.groups:
        raise IndexError(f"no group {highest}")

"""Names of columns that a query does not name."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*?)(?:_([0-9]{1,9}))?", re.DOTALL)
_GENERATED = "KSQL_COL"


class Aliases:
    """Gives names that no source of the query has. A number is added to a name that is taken, or was given before."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken: dict[str, set[int]] = {}
        """The numbers that are taken, by the name before them; 0 is the name alone."""
        for name in taken:
            stem, number = _parts(name)
            self._taken.setdefault(stem, set()).add(number)

    def of_field(self, name: str) -> str:
        """A name for the field of a struct."""
        stem, _ = _parts(name)
        number = self._next(stem)
        return f"{stem}_{number}" if number else stem

    def of_expression(self) -> str:
        """A name for an expression."""
        return f"{_GENERATED}_{self._next(_GENERATED)}"

    def _next(self, stem: str) -> int:
        taken, number = self._taken.setdefault(stem, set()), 0
        while number in taken:
            number += 1
        taken.add(number)
        return number


def _parts(name: str) -> tuple[str, int]:
    found = _NUMBERED.fullmatch(name)
    assert found is not None, "every name has a stem"
    return found[1], int(found[2] or 0)

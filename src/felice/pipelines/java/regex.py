"""Java's regular expressions in Python's terms.

Leaves out:  what Python's `re` does not have, such as `\\p{L}`: `compiled` refuses it as no regular expression. RE2 has
             `\\p{L}`, and no look-around, back references and possessive repetitions: `linear` refuses these.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

# `(?<name>`, and neither `(?<=` nor `(?<!`, unless the bracket is escaped.
_NAMED = re.compile(r"(?<!\\)((?:\\\\)*)\(\?<(?![=!])")
_MOST_MEMORY_BYTES = 256 * 1024
_MOST_STEPS = 300_000_000
"""The characters of a text times the instructions of an expression: a match takes at most some 5 seconds."""
_MOST_SECONDS = 10


def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern. Raises `re.error` for one that Python cannot have."""
    return re.compile(_NAMED.sub(r"\1(?P<", pattern))


class LinearPattern:
    """A pattern that cannot hang its process: one match takes a time that grows with the text's length alone."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError for a pattern that RE2 does not have."""
        import re2

        options = re2.Options()
        options.max_mem = _MOST_MEMORY_BYTES
        options.log_errors = False
        try:
            self._pattern = re2.compile(pattern, options)
        except (re2.error, UnicodeEncodeError) as error:
            why = error.args[0]
            told = why.decode(errors="replace") if isinstance(why, bytes) else "no Unicode text"
            raise ValueError(f"expected a regular expression, and got {pattern!r:.80}: {told}") from None
        re2.purge()  # `linear` has a cache of its own
        self.groups: int = self._pattern.groups
        """How many groups it has."""

    def first(self, text: str) -> re.Match[str] | None:
        """The first match. Raises ValueError as `matches`."""
        return next(self.matches(text), None)

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        """All matches, in order. Raises ValueError for a text that would take too long."""
        if len(text) * self._pattern.programsize > _MOST_STEPS:
            raise ValueError(
                f"a text of {len(text)} characters is too long for a regular expression of this size"
            )
        found: Any
        # Each match may read the rest of the text, so all of them together are not linear.
        latest = time.monotonic() + _MOST_SECONDS
        last = None
        for found in self._pattern.finditer(text):
            if found.span() == last:  # RE2 finds an empty match at the end of a text twice.
                continue
            last = found.span()
            yield found
            if time.monotonic() > latest:
                raise ValueError(f"the matches of a regular expression took more than {_MOST_SECONDS} s")


@lru_cache(maxsize=128)
def linear(pattern: str) -> LinearPattern:
    """The pattern of a text that any user wrote. Raises ValueError."""
    return LinearPattern(pattern)

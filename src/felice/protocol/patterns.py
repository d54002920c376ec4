"""Matches regular expressions from clients in linear time, with RE2.

Keeps true:  the time to match a text grows with its length times the size of the pattern, never faster, and a
             compiled pattern takes at most `PATTERN_MAX_MEMORY_BYTES`.
             Every fault of a pattern raises `PatternError`: syntax that RE2 does not support (look-around, back
             references), a repetition that is too high, a program that is too large, text that is not Unicode.
The first pattern imports RE2, so a broker that never receives a pattern does not load it.
"""

from __future__ import annotations

import re
from typing import Protocol

PATTERN_MAX_MEMORY_BYTES = 256 * 1024
"""Memory for the program of one pattern and the states of its matching. RE2's own default is 8 MiB."""

# RE2 treats a repetition of a hundred million or more as literal text. Kafka's engine refuses it.
_HUGE_REPETITION = r"(?<!\\)\{(?:[0-9]{9,}(?:,[0-9]*)?|[0-9]+,[0-9]{9,})\}"


class PatternError(ValueError):
    """The text is not a regular expression, or cannot be matched within the limits."""


class Pattern(Protocol):
    """The methods of a compiled pattern that Felice uses; `re` and RE2 both have them."""

    def fullmatch(self, text: str, /) -> object | None:
        """A match of the whole text, or None."""
        ...

    def search(self, text: str, /) -> object | None:
        """A match anywhere in the text, or None."""
        ...

    def match(self, text: str, /) -> object | None:
        """A match that begins where the text begins, or None."""
        ...


def linear_pattern(text: str) -> Pattern:
    """Compiles a pattern from an untrusted client. Raises `PatternError`."""
    import re2

    if re.search(_HUGE_REPETITION, text):
        raise PatternError("a repetition is too high")
    options = re2.Options()
    options.max_mem = PATTERN_MAX_MEMORY_BYTES
    options.never_capture = True  # groups cost time and memory, and their matches are not used
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(text, options)
    except re2.error as error:
        raise PatternError(_reason(error)) from None
    except UnicodeEncodeError:
        raise PatternError("not Unicode text") from None
    re2.purge()  # RE2's cache would keep the last 128 patterns
    return compiled


def own_pattern(text: str) -> Pattern:
    """Compiles a pattern of this process's user with RE2, or with Python's engine if RE2 does not support it.

    Look-around and back references are common in topic patterns, and a pattern that never finishes affects only its own
    user. Raises `PatternError`.
    """
    try:
        return linear_pattern(text)
    except PatternError:
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(str(error)) from None


def _reason(error: Exception) -> str:
    found = error.args[0] if error.args else ""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)

"""Regular expressions from outside, matched in linear time by RE2.

Keeps true:  the time to match a text grows with its length times the size of the pattern, never faster, and a
             compiled pattern takes at most `PATTERN_MAX_MEMORY_BYTES`.
             Whatever is wrong with a pattern becomes `PatternError`: a syntax that RE2 does not have (look-around,
             back references), a repetition that is too high, a program that is too large, text that is not Unicode.
RE2 is imported with the first pattern: a broker that is never sent one does not load it.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

PATTERN_MAX_MEMORY_BYTES = 256 * 1024
"""For the program of one pattern and the states met while it matches; RE2 itself would allow 8 MiB."""

# RE2 takes a repetition of a hundred million or more for literal text. Kafka's engine refuses it.
_HUGE_REPETITION = re.compile(r"(?<!\\)\{(?:[0-9]{9,}(?:,[0-9]*)?|[0-9]+,[0-9]{9,})\}")


class PatternError(ValueError):
    """A text that is no regular expression, or one that cannot be matched within the limits."""


class Pattern(Protocol):
    """The methods of a compiled pattern that Felice uses; `re` and RE2 both have them."""

    def fullmatch(self, text: str, /) -> Any: ...

    def match(self, text: str, /) -> Any: ...


def linear_pattern(text: str) -> Pattern:
    """Compiles a pattern that anybody may have sent. Raises `PatternError`."""
    import re2

    if _HUGE_REPETITION.search(text):
        raise PatternError("a repetition is too high")
    options = re2.Options()
    options.max_mem = PATTERN_MAX_MEMORY_BYTES
    options.never_capture = True  # groups cost time and memory, and nobody asks what they matched
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(text, options)
    except re2.error as error:
        raise PatternError(_reason(error)) from None
    except UnicodeEncodeError:
        raise PatternError("not Unicode text") from None
    re2.purge()  # its cache would keep the last 128 patterns
    return compiled


def own_pattern(text: str) -> Pattern:
    """Compiles a pattern of the user of this process: as `linear_pattern`, with Python's engine for the rest.

    Look-around and back references are common in patterns for topics, and a user who writes one that takes for
    ever stops nobody else. Raises `PatternError`.
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

"""Java's regular expressions in Python's terms.

Leaves out:  what Python's `re` does not have, such as `\\p{L}`: it is refused as no regular expression.
"""

from __future__ import annotations

import re

# `(?<name>`, and neither `(?<=` nor `(?<!`, unless the bracket is escaped.
_NAMED = re.compile(r"(?<!\\)((?:\\\\)*)\(\?<(?![=!])")


def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern. Raises `re.error` for one that Python cannot have."""
    return re.compile(_NAMED.sub(r"\1(?P<", pattern))

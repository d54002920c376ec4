"""Regular expressions of `patternProperties`, matched in linear time.

A pattern that RE2 does not know, with a look-ahead or a back reference, matches no name: then the property counts as
one that no pattern covers, and a change of it is rather refused than accepted.
"""

from __future__ import annotations

import functools

MAX_PATTERN_CHARACTERS = 10_000
_MAX_MEMORY_BYTES = 8 << 20


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern is found anywhere in a name."""
    compiled = _compiled(pattern)
    return compiled is not None and compiled.search(name) is not None


@functools.lru_cache(maxsize=1_000)
def _compiled(pattern: str):  # type: ignore[no-untyped-def]  # re2 has no types
    import re2

    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return None
    options = re2.Options()
    options.max_mem = _MAX_MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error:
        return None

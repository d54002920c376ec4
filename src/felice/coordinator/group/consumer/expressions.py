"""Regular expressions of subscriptions: RE2 syntax, matched against the whole name of each topic.

Keeps true:  a client's expression takes time in proportion to the length of the names, and bounded memory, because RE2
             has no back-references and no look-around. Python's `re` never compiles a client's expression.
             The names are matched in a thread (`ResolveExpressions`), once for all expressions of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from felice.protocol.errors import ApiError, ErrorCode

MAX_MEMORY_BYTES = 1 << 18
"""The limit for RE2's program of one expression, with its cache of states."""
MAX_LENGTH = 512
"""RE2 compiles in the event loop. The worst expression of this length takes about 15 milliseconds."""

May = Callable[[str], bool]


def check_expression(expression: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION for an expression that must not be used."""
    reason = fault_of(expression)
    if reason is not None:
        message = f"SubscribedTopicRegex is not a valid regular expression: {reason}."
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


def fault_of(expression: str) -> str | None:
    """The reason to refuse an expression: syntax, length, or memory. None if the expression may be used."""
    import re2

    if len(expression) > MAX_LENGTH:
        return f"it has {len(expression)} characters, and at most {MAX_LENGTH} are accepted"
    try:
        re2.compile(expression, _options(re2))
    except re2.error as error:
        return _text_of(error)
    return None


def matched_names(
    expressions: Iterable[str], names: Collection[str], may_describe: May | None
) -> dict[str, frozenset[str]]:
    """The names that each expression matches as a whole. Names that `may_describe` refuses are left out."""
    import re2

    found = {}
    allowed: dict[str, bool] = {}
    for expression in expressions:
        match = re2.compile(expression, _options(re2)).fullmatch
        matched = [name for name in names if match(name)]
        if may_describe is not None:
            for name in matched:
                if name not in allowed:
                    allowed[name] = may_describe(name)
            matched = [name for name in matched if allowed[name]]
        found[expression] = frozenset(matched)
    return found


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    return options


def _text_of(error: Exception) -> str:
    text = error.args[0] if error.args else ""
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)

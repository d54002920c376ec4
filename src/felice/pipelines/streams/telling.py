"""Text of an application's values and errors, for messages that must appear for any value."""

from __future__ import annotations


def shown(value: object) -> str:
    """`repr(value)`, or the type of the value if `repr` fails, for example because the value is nested too deeply."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def told(error: BaseException | None) -> str:
    """The type of an error and its text, if it has one that can be computed; see `shown`."""
    try:
        text = str(error)
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    except Exception as another:
        return f"{type(error).__name__} (its text cannot be shown: {type(another).__name__})"

"""Text of an application's values and errors, for messages that must appear for any value."""

from __future__ import annotations


def shown(value: object) -> str:
    """`repr(value)`, or the type of the value if `repr` fails, for example because the value is nested too deeply."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def told(error: BaseException | None) -> str:
    """The type and text of an error; without the text if that cannot be computed, as for a value in `shown`."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:
        return f"{type(error).__name__} (its text cannot be shown: {type(another).__name__})"

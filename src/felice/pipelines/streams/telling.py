"""Values and errors of the application as text, for messages that must appear whatever the value is."""

from __future__ import annotations


def shown(value: object) -> str:
    """`repr(value)`. A value that has none, such as one nested too deeply, is told by its type."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def told(error: BaseException | None) -> str:
    """An error's type and text. Its text may contain a value that has no text."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as another:
        return f"{type(error).__name__} (its text cannot be shown: {type(another).__name__})"

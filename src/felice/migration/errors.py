"""The error of an import or export: one line for the user. Nothing was changed, unless the line says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class MigrationError(Exception):
    """A directory cannot be imported or exported. The text says why, and what to do."""


@contextmanager
def explained(what: str, *kinds: type[Exception]) -> Iterator[None]:
    """Within, exceptions of these kinds become a `MigrationError` about `what`."""
    try:
        yield
    except kinds as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise MigrationError(f"{what}: {reason}") from error

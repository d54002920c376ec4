"""The errors that Spark's sources and stream applications have in common."""

from __future__ import annotations


class FormatError(ValueError):
    """Bytes that are not in the expected format, or a value that the format cannot hold."""


class PlainError(Exception):
    """An error whose text says all that its reader needs: no other error is put around it."""


class SchemaError(PlainError, ValueError):
    """A schema that cannot be used, or lacks what the application names."""


class OutsideError(PlainError):
    """What a record needs from outside the application failed, such as a schema registry: no fault of the record.

    The options for bad records do not apply to it: an outage would set all records aside.
    """

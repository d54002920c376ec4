"""The errors that Spark's sources and stream applications have in common."""

from __future__ import annotations


class FormatError(ValueError):
    """Bytes that are not in the expected format, or a value that the format cannot hold."""

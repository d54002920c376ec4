"""Ids of topics and clusters as Kafka prints them: 16 bytes in base64url without padding, 22 characters."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID


def format_uuid(value: UUID) -> str:
    """Returns the 22 characters of an id."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    """Parses the 22 characters of an id. Raises `ValueError`."""
    return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))

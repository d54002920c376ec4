"""Counts the accepted connections of all listeners of a broker, which `max.connections` limits."""

from __future__ import annotations


class Connections:
    """The counter that the listeners of one broker share."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

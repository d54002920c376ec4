"""The number of accepted connections of all listeners of a broker: `max.connections` limits it."""

from __future__ import annotations


class Connections:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

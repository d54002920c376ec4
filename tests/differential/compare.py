"""Carries out the operations of a run on both brokers, and shortens a run in which the answers differ."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from differential.accepted import Accepted, Difference, covering
from differential.address import Address
from differential.forgetting import forget
from differential.normalise import differences
from differential.operation import Operation
from differential.plain import Plain
from differential.side import Side

SETTLE_S, PATIENT_SETTLE_S = 0.03, 0.3
_names = itertools.count(int(time.time()) % 10**6 * 1000)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first operation whose answers differ in a way that nothing accepts."""

    index: int
    operation: Operation
    found: list[Difference]
    answers: tuple[Plain, Plain]

    @property
    def signature(self) -> str:
        """A text that is equal for differences with probably the same cause."""
        parts = [self.operation.api, *(f"{path}: {_short(k)} / {_short(f)}" for path, k, f in self.found[:2])]
        return " | ".join(parts)


def _short(value: Plain) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass
class Played:
    """`answered` counts the operations compared."""

    answered: int = 0
    divergence: Divergence | None = None
    accepted: list[Accepted] = field(default_factory=list)


@dataclass
class Comparison:
    kafka: Address
    felice: Address
    table: list[Accepted]
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))

    def play(self, operations: Sequence[Operation], settle_s: float = SETTLE_S) -> Played:
        """Sends the operations until the end, or until the brokers are in different states."""
        prefix, now_ms = f"run-{next(_names)}-", int(time.time() * 1000)
        sides = [
            Side(name, address, prefix, now_ms, settle_s)
            for name, address in (("kafka", self.kafka), ("felice", self.felice))
        ]
        played = Played()
        try:
            for index, operation in enumerate(operations):
                kafka, felice = self.threads.map(lambda side, op=operation: side.carry_out(op), sides)  # type: ignore[misc]
                played.answered += 1
                found = differences(kafka, felice)
                if not found:
                    continue
                rows = covering(self.table, operation, found)
                if rows is None:
                    played.divergence = Divergence(index, operation, found, (kafka, felice))
                    return played
                played.accepted += rows
                if any(row.ends_run for row in rows):
                    return played
        finally:
            for side in sides:
                side.close()
            list(self.threads.map(forget, sides))
        return played

    def confirm(self, operations: Sequence[Operation]) -> Divergence | None:
        """Repeats the run with longer waits; returns the difference that remains."""
        return self.play(operations, PATIENT_SETTLE_S).divergence

    def minimise(self, operations: Sequence[Operation], signature: str, budget: int = 40) -> list[Operation]:
        """The operations without those that this difference does not need, found in at most `budget` further runs."""
        kept = list(operations)
        size = max(1, len(kept) // 2)
        while budget > 0:
            index = 0
            while index < len(kept) - 1 and budget > 0:
                shorter = kept[:index] + kept[min(index + size, len(kept) - 1) :]
                budget -= 1
                found = self.play(shorter, PATIENT_SETTLE_S / 3).divergence
                if found is not None and found.signature == signature:
                    kept = shorter[: found.index + 1]
                else:
                    index += size
            if size == 1:
                break
            size = max(1, size // 2)
        return kept

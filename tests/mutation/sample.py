"""What a random sample of mutants says about all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

_Z_95 = 1.96


def draw(mutants: Sequence[str], size: int | None, seed: int) -> list[str]:
    """`size` of the mutants, the same for one seed; all of them without a size."""
    if size is None or size >= len(mutants):
        return list(mutants)
    return random.Random(seed).sample(sorted(mutants), size)


@dataclass(frozen=True, slots=True)
class Share:
    """`survivors` of a `sample` that was drawn from `population`."""

    survivors: int
    sample: int
    population: int

    @property
    def value(self) -> float:
        return self.survivors / self.sample if self.sample else 0.0

    @property
    def is_whole(self) -> bool:
        return self.sample >= self.population

    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the share in the population (Wilson)."""
        if self.is_whole or not self.sample:
            return self.value, self.value
        n, z = self.sample, _Z_95
        middle = (self.value + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * sqrt(self.value * (1 - self.value) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        if self.is_whole:
            return f"{self.survivors} of {self.sample} mutants survive: {self.value:.1%}"
        low, high = self.interval()
        return (
            f"{self.survivors} of {self.sample} mutants survive: {self.value:.1%} "
            f"(a sample of {self.population}; 95 % confidence: {low:.1%} to {high:.1%})"
        )

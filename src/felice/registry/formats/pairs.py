"""Runs comparisons of types that need comparisons of the types inside them.

Keeps true:  each pair of a reader's and a writer's type is compared once; a pair that is met again while it is compared
             counts as compatible. So comparisons of recursive types end.
             More than `MAX_PAIRS` pairs raise `TooManyPairs`; a comparison finds at most `MAX_REASONS` reasons.
How:         a comparison is a generator that yields the comparisons that it needs, receives their reasons, and returns
             its own. A loop with its own stack runs them, because pairs of recursive types can be met in chains much
             longer than Python's stack is deep.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, TypeVar

MAX_PAIRS = 200_000
"""Real schemas have a pair for each mention of a type; the limit keeps a comparison below about 50 MB."""

MAX_REASONS = 1_000

Q = TypeVar("Q")
R = TypeVar("R")
Pair = tuple[int, int]
"""The ids of a reader's and a writer's type."""


class NotComparable(Exception):
    """The schemas cannot be compared; the message says why."""


class Comparisons(Generic[Q, R]):
    """The comparisons of two schemas.

    Q is a question, which has a pair (`pair_of`), and R a reason for an incompatibility. `at_once` answers questions
    that need no others, and returns None for the rest, for which `steps` makes a generator.
    """

    def __init__(
        self,
        pair_of: Callable[[Q], Pair],
        at_once: Callable[[Q], list[R] | None],
        steps: Callable[[Q], Generator[Q, list[R], list[R]]],
    ) -> None:
        self._pair_of, self._at_once, self._steps = pair_of, at_once, steps
        self._known: dict[Pair, list[R]] = {}
        self._open: dict[int, set[int]] = {}
        self._stack: list[tuple[Pair, Generator[Q, list[R], list[R]]]] = []

    def run(self, first: Q) -> list[R]:
        """The reasons of a question. Raises `NotComparable` above `MAX_PAIRS`."""
        found = self._begin(first)
        while self._stack:
            pair, steps = self._stack[-1]
            try:
                needed = next(steps) if found is None else steps.send(found)
            except StopIteration as end:
                self._stack.pop()
                self._open[pair[1]].remove(pair[0])
                found = self._known[pair] = end.value[:MAX_REASONS]
            else:
                found = self._begin(needed)
        assert found is not None
        return found

    def open_readers(self, writer: object) -> set[int]:
        """The ids of the readers whose comparison with this writer has begun and not ended."""
        return self._open.get(id(writer), set())

    def _begin(self, question: Q) -> list[R] | None:
        """The reasons, if they are known; None if the comparison was put on the stack."""
        found = self._at_once(question)
        if found is not None:
            return found
        pair = self._pair_of(question)
        found = self._known.get(pair)
        if found is None:
            if len(self._known) >= MAX_PAIRS:
                raise NotComparable(f"there are more than {MAX_PAIRS} pairs of types to compare")
            self._known[pair] = []
            self._open.setdefault(pair[1], set()).add(pair[0])
            self._stack.append((pair, self._steps(question)))
        return found


def add(found: list[R], more: list[R]) -> None:
    """Adds reasons within `MAX_REASONS` at once: each mention of a type repeats the reasons that were found in it."""
    found += more[: MAX_REASONS - len(found)]

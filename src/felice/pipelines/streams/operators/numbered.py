"""Numbers the records of a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.record import Step
from felice.pipelines.streams.stores import Numbers

NumberedFunction = Callable[[Any, Any, int], Any]
"""(key, value, number) -> value"""


@dataclass(frozen=True, slots=True)
class Numbered:
    """Replaces the value; the function also gets the record's number. Of a batch, only the last number is written."""

    function: NumberedFunction
    numbers: Numbers

    def step(self) -> Step:
        """One record with the same key."""
        names = {"function": self.function, "next_number": self.numbers.next}
        return Step("value = {function}(key, value, {next_number}())", names)

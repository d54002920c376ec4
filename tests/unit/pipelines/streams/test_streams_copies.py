"""Values that functions may change are copied for each of them; others are not, because that takes time."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from felice.pipelines.streams.copies import copies, own_copies


class Pair(NamedTuple):
    one: Any
    other: Any


@pytest.mark.parametrize("value", [(), (1, "a", None), (Decimal("1.5"), (True, b"x")), "text"])
def test_tuples_that_cannot_change_are_not_copied(value: Any) -> None:
    assert all(one is value for one in copies(value, 3))
    assert own_copies(lambda: value)() is value


@pytest.mark.parametrize("value", [([1],), (1, ({"a": 1},)), Pair(1, [2]), [1]])
def test_tuples_with_values_that_can_change_are_copied(value: Any) -> None:
    one, other = copies(value, 2)
    assert one == other == value and one is not other and one is not value
    assert own_copies(lambda: value)() is not value

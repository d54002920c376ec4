"""Regular expressions of consumer groups: RE2 compiles them in the event loop, so what it may cost is limited."""

import pytest

from felice.coordinator.group.consumer.expressions import MAX_LENGTH, check_expression, matched_names
from felice.protocol.errors import ApiError, ErrorCode


@pytest.mark.parametrize(
    "expression",
    [
        "a" * (MAX_LENGTH + 1),
        r"\pL" * (MAX_LENGTH // 3),
        "(?:a{1,1000})*" * (MAX_LENGTH // 14),  # some 100 ms with 1 MiB
    ],
)
def test_expression_that_is_costly_to_compile_is_refused(expression: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_expression(expression)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_longest_expression_matches() -> None:
    names = [f"orders-{number:03}" for number in range(MAX_LENGTH // 11)]
    expression = "|".join(names)
    check_expression(expression)
    assert matched_names([expression], [*names, "orders"], None) == {expression: frozenset(names)}

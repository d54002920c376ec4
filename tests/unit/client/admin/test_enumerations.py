"""Enumerations of the administrative API: order, names in the protocol, and bit sets of operations."""

from __future__ import annotations

import pytest

from felice.client.admin import (
    AclOperation,
    ConsumerGroupState,
    ConsumerGroupType,
    ResourceType,
    TransactionState,
)
from felice.client.admin.enumerations import authorized_operations
from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED


def test_members_of_one_enumeration_are_in_the_order_of_their_numbers() -> None:
    kinds = [ResourceType.BROKER, ResourceType.TOPIC, ResourceType.GROUP]
    assert sorted(kinds) == [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER]
    assert not ResourceType.TOPIC < ResourceType.TOPIC
    with pytest.raises(TypeError):
        _ = ResourceType.TOPIC < AclOperation.WRITE
    with pytest.raises(TypeError):
        _ = ResourceType.TOPIC < 5


@pytest.mark.parametrize("value", [ResourceType.TOPIC, "topic", "TOPIC", 2])
def test_types_of_resources_by_member_name_or_number(value: ResourceType | str | int) -> None:
    assert ResourceType.chosen(value) is ResourceType.TOPIC


def test_states_and_types_by_their_names_in_the_protocol() -> None:
    for state in ConsumerGroupState:
        assert ConsumerGroupState.of(state.wire_name.upper()) is state
    assert ConsumerGroupState.PREPARING_REBALANCING.wire_name == "PreparingRebalance"
    assert ConsumerGroupState.of("Odd") is ConsumerGroupState.UNKNOWN
    assert ConsumerGroupType.of("Classic") is ConsumerGroupType.CLASSIC
    assert ConsumerGroupType.of("streams") is ConsumerGroupType.UNKNOWN
    assert TransactionState.of("PrepareCommit") is TransactionState.PREPARE_COMMIT
    assert TransactionState.of("Odd") is TransactionState.UNKNOWN


def test_operations_of_a_bit_set() -> None:
    assert authorized_operations(OPERATIONS_NOT_REQUESTED) is None
    assert authorized_operations(0) == []
    assert authorized_operations(1 << 12 | 1 << 3) == [AclOperation.READ, AclOperation.IDEMPOTENT_WRITE]

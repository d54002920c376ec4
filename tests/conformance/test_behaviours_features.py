"""Features: the supported levels, the finalized levels, and how they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.targets import Target
from conformance.wire import Wire
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from waiting import wait_until

NAME = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Target]:
    """A broker for this module only, because features concern all clients of a cluster."""
    with Target() as target:
        yield target


@pytest.fixture
def wire(cluster: Target) -> Iterator[Wire]:
    with cluster.wire() as wire:
        assert update(wire, 2, UPGRADE if level(wire) < 2 else SAFE) == ErrorCode.NONE
        wait_until(lambda: level(wire) == 2)
        yield wire


def features(wire: Wire, version: int = 4) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    """Supported ranges, finalized levels and their epoch."""
    asked = ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    answer = wire.ask(asked, version)
    assert all(row.min_version_level == row.max_version_level for row in answer.finalized_features)
    return (
        {row.name: (row.min_version, row.max_version) for row in answer.supported_features},
        {row.name: row.max_version_level for row in answer.finalized_features},
        answer.finalized_features_epoch,
    )


def level(wire: Wire) -> int:
    return features(wire)[1].get(NAME, 0)


def update(wire: Wire, wanted: int, kind: int, *, name: str = NAME, validate: bool = False) -> int:
    change = FeatureUpdateKey(feature=name, max_version_level=wanted, upgrade_type=kind)
    return int(
        wire.ask(UpdateFeaturesRequest(feature_updates=[change], validate_only=validate), 2).error_code
    )


def test_a_new_cluster_has_finalized_transaction_v2() -> None:
    with Target() as target, target.wire() as wire:
        supported, finalized, epoch = features(wire)
        assert supported[NAME] == (0, 2)
        assert finalized[NAME] == 2
        assert epoch >= 0


def test_features_are_absent_before_version_3(wire: Wire) -> None:
    assert features(wire, 2) == ({}, {}, -1)
    assert features(wire, 3)[1][NAME] == 2


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_a_level_is_lowered_and_raised(wire: Wire, kind: int) -> None:
    epoch = features(wire)[2]
    for wanted in (1, 0):
        assert update(wire, wanted, kind) == ErrorCode.NONE
        wait_until(lambda wanted=wanted: level(wire) == wanted)
    assert NAME not in features(wire)[1]
    for wanted in (1, 2):
        assert update(wire, wanted, UPGRADE) == ErrorCode.NONE
        wait_until(lambda wanted=wanted: level(wire) == wanted)
    assert features(wire)[2] > epoch


def test_validating_a_feature_update_changes_nothing(wire: Wire) -> None:
    epoch = features(wire)[2]
    assert update(wire, 1, SAFE, validate=True) == ErrorCode.NONE
    assert update(wire, 3, UPGRADE, validate=True) == ErrorCode.INVALID_UPDATE_VERSION
    assert level(wire) == 2
    if epoch < 100:  # Apache Kafka's epoch is an offset of its metadata log, which moves by itself
        assert features(wire)[2] >= epoch


@pytest.mark.parametrize(
    ("wanted", "kind", "name"),
    [
        (3, UPGRADE, NAME),
        (-1, SAFE, NAME),
        (1, UPGRADE, NAME),
        (1, 0, NAME),
        (1, 9, NAME),
        (1, UPGRADE, "no.such.feature"),
    ],
    ids=["too high", "negative", "lower as an upgrade", "no kind", "unknown kind", "unknown feature"],
)
def test_impossible_feature_levels_are_refused(wire: Wire, wanted: int, kind: int, name: str) -> None:
    assert update(wire, wanted, kind, name=name) == ErrorCode.INVALID_UPDATE_VERSION
    assert level(wire) == 2


def test_a_level_is_not_raised_as_a_downgrade(wire: Wire) -> None:
    assert update(wire, 1, SAFE) == ErrorCode.NONE
    wait_until(lambda: level(wire) == 1)
    assert update(wire, 2, SAFE) == ErrorCode.INVALID_UPDATE_VERSION


def test_all_or_none(wire: Wire) -> None:
    changes = [
        FeatureUpdateKey(feature=NAME, max_version_level=1, upgrade_type=SAFE),
        FeatureUpdateKey(feature="no.such.feature", max_version_level=1, upgrade_type=UPGRADE),
    ]
    answer = wire.ask(UpdateFeaturesRequest(feature_updates=changes), 2)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "no.such.feature" in answer.error_message
    assert level(wire) == 2


def test_version_1_lists_the_features(wire: Wire) -> None:
    change = FeatureUpdateKey(feature=NAME, max_version_level=1, upgrade_type=SAFE)
    answer = wire.ask(UpdateFeaturesRequest(feature_updates=[change]), 1)
    assert (answer.error_code, [(row.feature, row.error_code) for row in answer.results]) == (0, [(NAME, 0)])
    wait_until(lambda: level(wire) == 1)


def test_version_0_only_raises_levels(wire: Wire) -> None:
    """Kafka 4.3 does not heed its allow_downgrade, neither for a lower level nor for the same or a higher one."""

    def asked(wanted: int) -> Any:
        change = FeatureUpdateKey(feature=NAME, max_version_level=wanted, allow_downgrade=True)
        return wire.ask(UpdateFeaturesRequest(feature_updates=[change]), 0)

    assert asked(1).error_code == ErrorCode.INVALID_UPDATE_VERSION
    answer = asked(2)
    assert (answer.error_code, [(row.feature, row.error_code) for row in answer.results]) == (0, [(NAME, 0)])
    assert update(wire, 1, SAFE) == ErrorCode.NONE
    wait_until(lambda: level(wire) == 1)
    assert asked(2).error_code == ErrorCode.NONE
    wait_until(lambda: level(wire) == 2)


def test_levels_outlive_a_restart() -> None:
    with Target() as target:
        with target.wire() as wire:
            assert update(wire, 1, SAFE) == ErrorCode.NONE
        target.restart()
        with target.wire() as wire:
            wait_until(lambda: level(wire) == 1)

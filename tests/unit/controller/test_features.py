"""Checks of requests for other feature levels."""

from __future__ import annotations

import pytest

from felice.controller.features import (
    SUPPORTED,
    TRANSACTION_VERSION,
    FeatureChange,
    UpgradeType,
    plan_levels,
    unsupported_level,
)
from felice.metadata import layout
from felice.metadata.layout import BrokerNode
from felice.protocol.errors import ApiError, ErrorCode

NEW, OLD = {TRANSACTION_VERSION: (0, 2)}, {TRANSACTION_VERSION: (0, 1)}


def raised(level: int) -> FeatureChange:
    return FeatureChange(TRANSACTION_VERSION, level, UpgradeType.UPGRADE)


def test_a_level_is_finalized_only_if_every_broker_supports_it() -> None:
    assert plan_levels({}, [raised(2)], {1: NEW, 2: NEW}) == {TRANSACTION_VERSION: 2}
    assert plan_levels({}, [raised(1)], {1: NEW, 2: OLD}) == {TRANSACTION_VERSION: 1}
    with pytest.raises(ApiError, match=r"Broker 2 only supports versions 0-1\.") as caught:
        plan_levels({}, [raised(2)], {1: NEW, 2: OLD})
    assert caught.value.code == ErrorCode.INVALID_UPDATE_VERSION
    with pytest.raises(ApiError, match=r"Broker 3 does not support this feature\."):
        plan_levels({}, [raised(2)], {1: NEW, 3: {}})


def test_level_0_means_that_the_feature_is_not_finalized() -> None:
    off = FeatureChange(TRANSACTION_VERSION, 0, UpgradeType.SAFE_DOWNGRADE)
    assert plan_levels({TRANSACTION_VERSION: 2, "other": 1}, [off], {1: NEW}) == {"other": 1}


def test_a_broker_does_not_join_a_cluster_with_features_that_it_lacks() -> None:
    assert unsupported_level({TRANSACTION_VERSION: 2}) is None
    assert unsupported_level({}) is None
    assert "at level 3" in (unsupported_level({TRANSACTION_VERSION: 3}) or "")
    assert "share.version" in (unsupported_level({"share.version": 1}) or "")


def test_the_nodes_content_is_kafkas() -> None:
    data = layout.encode_features({TRANSACTION_VERSION: 2})
    assert data == b'{"version":2,"status":1,"features":{"transaction.version":2}}'
    assert layout.decode_features(data) == {TRANSACTION_VERSION: 2}
    assert layout.decode_features(b'{"version":2,"status":0,"features":{"transaction.version":2}}') == {}


def test_a_broker_reports_the_features_that_it_supports() -> None:
    node = BrokerNode((), {}, None, 0, SUPPORTED)
    data = layout.encode_broker(node)
    group, transaction = (
        f'"{name}":{{"min_version":0,"max_version":{level}}}'.encode()
        for name, level in (("group.version", 1), ("transaction.version", 2))
    )
    assert b'"features":{' + group + b"," + transaction + b"}" in data
    assert layout.decode_broker(data) == node

"""Features that a cluster of these brokers can finalize, and the checks of requests to change their levels.

Keeps true:  a level is finalized only if every broker supports it, and is lowered only by an explicit downgrade.
             All changes of a request are made, or none.

A level of 0 means that the feature is off. Pure: levels go in, levels or an error come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from felice.dataclass import dataclass
from felice.protocol.errors import ApiError, ErrorCode

TRANSACTION_VERSION = "transaction.version"
"""0: as before KIP-890; 1: flexible records of transactional ids; 2: transaction V2."""

GROUP_VERSION = "group.version"
"""0: classic groups only; 1: consumer groups, too (KIP-848)."""

Levels = Mapping[str, tuple[int, int]]
"""The lowest and the highest level of each feature that a broker supports."""

SUPPORTED: Levels = {GROUP_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)}

FIRST_LEVELS: Mapping[str, int] = {name: highest for name, (_, highest) in SUPPORTED.items()}
"""The levels of a new cluster. An existing cluster keeps its levels until an operator raises them."""


class UpgradeType(IntEnum):
    """The kinds of change in an UpdateFeatures request (KIP-584), with the numbers of the protocol."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """One change of a request. `upgrade_type` is the number in the request, which may be unknown."""

    feature: str
    level: int
    upgrade_type: int


def plan_levels(
    finalized: Mapping[str, int], changes: Sequence[FeatureChange], brokers: Mapping[int, Levels]
) -> Mapping[str, int]:
    """The levels to finalize; `brokers` has what each live broker supports. Raises `ApiError` for the first fault."""
    levels = dict(finalized)
    for requested in changes:
        if reason := _refusal(requested, finalized.get(requested.feature, 0), brokers):
            message = (
                "The update failed for all features since the following feature had an error:"
                f" Invalid update version {requested.level} for feature {requested.feature}. {reason}"
            )
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)
        levels[requested.feature] = requested.level
    return {name: level for name, level in sorted(levels.items()) if level > 0}


def _refusal(requested: FeatureChange, current: int, brokers: Mapping[int, Levels]) -> str | None:
    if requested.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if requested.level < 0:
        return "A feature version cannot be less than 0."
    for broker_id, supported in sorted(brokers.items()):
        if reason := _unsupported(requested, supported.get(requested.feature)):
            return f"Broker {broker_id} {reason}"
    is_upgrade = requested.upgrade_type == UpgradeType.UPGRADE
    if requested.level < current and is_upgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
            " unsafe downgrade."
        )
    if requested.level > current and not is_upgrade:
        return "Can't downgrade to a newer version."
    return None


def _unsupported(requested: FeatureChange, levels: tuple[int, int] | None) -> str | None:
    if levels is None:
        return "does not support this feature."
    lowest, highest = levels
    return None if lowest <= requested.level <= highest else f"only supports versions {lowest}-{highest}."


def unsupported_level(finalized: Mapping[str, int]) -> str | None:
    """The reason why this broker cannot join a cluster with these levels, or None."""
    for feature, level in finalized.items():
        if reason := _unsupported(FeatureChange(feature, level, UpgradeType.UPGRADE), SUPPORTED.get(feature)):
            return f"the cluster has finalized feature {feature} at level {level}, and this broker {reason}"
    return None

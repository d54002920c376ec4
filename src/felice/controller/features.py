"""Which features a cluster of these brokers can finalize, and how a wish to change their levels is judged.

Keeps true:  a level is finalized only if every broker supports it, and is lowered only by somebody who said so.
             Several wishes count all together or not at all.

A level of 0 is a feature that is switched off. Pure: levels go in, levels or a fault come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from felice.protocol.errors import ApiError, ErrorCode

TRANSACTION_VERSION = "transaction.version"
"""0: as before KIP-890; 1: flexible records of transactional ids; 2: transaction V2."""


Levels = Mapping[str, tuple[int, int]]
"""The lowest and the highest level of each feature that a broker can run with."""

SUPPORTED: Levels = {TRANSACTION_VERSION: (0, 2)}

FIRST_LEVELS: Mapping[str, int] = {name: highest for name, (_, highest) in SUPPORTED.items()}
"""What a new cluster begins with. One that is there already keeps what it has until somebody raises it."""


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureWish:
    """`upgrade_type` is the number in the request, which may be none of ours."""

    feature: str
    level: int
    upgrade_type: int


def plan_levels(
    finalized: Mapping[str, int], wishes: Sequence[FeatureWish], brokers: Mapping[int, Levels]
) -> Mapping[str, int]:
    """The levels to finalize; `brokers` says what each broker that is alive supports. Raises for the first fault."""
    levels = dict(finalized)
    for wish in wishes:
        if reason := _refusal(wish, finalized.get(wish.feature, 0), brokers):
            message = (
                "The update failed for all features since the following feature had an error:"
                f" Invalid update version {wish.level} for feature {wish.feature}. {reason}"
            )
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)
        levels[wish.feature] = wish.level
    return {name: level for name, level in sorted(levels.items()) if level > 0}


def _refusal(wish: FeatureWish, current: int, brokers: Mapping[int, Levels]) -> str | None:
    if wish.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if wish.level < 0:
        return "A feature version cannot be less than 0."
    for broker_id, supported in sorted(brokers.items()):
        if reason := _unsupported(wish, supported.get(wish.feature)):
            return f"Broker {broker_id} {reason}"
    is_upgrade = wish.upgrade_type == UpgradeType.UPGRADE
    if wish.level < current and is_upgrade:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
            " unsafe downgrade."
        )
    if wish.level > current and not is_upgrade:
        return "Can't downgrade to a newer version."
    return None


def _unsupported(wish: FeatureWish, levels: tuple[int, int] | None) -> str | None:
    if levels is None:
        return "does not support this feature."
    lowest, highest = levels
    return None if lowest <= wish.level <= highest else f"only supports versions {lowest}-{highest}."


def unsupported_level(finalized: Mapping[str, int]) -> str | None:
    """Why this broker cannot be one of a cluster with these levels."""
    for feature, level in finalized.items():
        if reason := _unsupported(FeatureWish(feature, level, UpgradeType.UPGRADE), SUPPORTED.get(feature)):
            return f"the cluster has finalized feature {feature} at level {level}, and this broker {reason}"
    return None

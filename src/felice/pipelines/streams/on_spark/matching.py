"""Finds the stores of the earlier version of a program again in the new one.

Keeps true: a store of the new version gets the rows of an earlier one only if both have one shape (kind, formats and
            windows) and one layout of values. A store that the application named is found by its name. A store
            without a name is found by the origin of its rows. If several stores have this origin, the user must
            choose: nothing is guessed.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from felice.pipelines.streams.on_spark.directory import CheckpointError, StoreDescription

KeyT = TypeVar("KeyT", bound=Hashable)
StoreT = TypeVar("StoreT")
Matched = dict[str, str]
"""The earlier name by the new one."""


def match(
    before: Iterable[StoreDescription],
    now: Iterable[StoreDescription],
    keep: Mapping[str, str],
    drop: Iterable[str] = (),
) -> Matched:
    """The stores whose rows the new version keeps. `keep` has names of earlier stores with those of new ones, and
    `drop` those whose rows are not wanted. Raises `CheckpointError` if it is not certain which store is which.
    """
    old, new = {one.name: one for one in before}, {one.name: one for one in now}
    matched: Matched = {}

    def pair(earlier: StoreDescription, later: StoreDescription) -> None:
        matched[later.name] = earlier.name
        del old[earlier.name], new[later.name]

    known = set(old)
    for name in drop:
        old.pop(name, None)  # It may have been dropped at an earlier start.
    for earlier_name, later_name in keep.items():
        if earlier_name not in known and later_name in known:
            continue  # An earlier start has done it.
        if earlier_name not in known and later_name not in new:
            continue  # It concerns another application of the file.
        if earlier_name not in old:
            raise CheckpointError(f"the state has no store {earlier_name!r} to keep; {_choice(old)}")
        if later_name not in new:
            raise CheckpointError(f"the program has no store {later_name!r}; {_choice(new)}")
        earlier, later = old[earlier_name], new[later_name]
        if not earlier.fits(later):
            own, other = (" ".join(filter(None, (one.shape, one.layout))) for one in (earlier, later))
            raise CheckpointError(
                f"store {later_name!r} cannot have the rows of {earlier_name!r}: they are {own}, and the program's are "
                f"{other}"
            )
        pair(earlier, later)
    for later in [one for one in new.values() if one.is_named]:
        found = old.get(later.name)
        if found is not None and found.is_named and found.fits(later):
            pair(found, later)
    # A store that has got a name since then, or lost it, is found by its lineage.
    free = {name: one for name, one in old.items() if not one.is_named or name not in new}
    _pair_equal(free, new, lambda one: (one.shape, one.exact), pair)
    free = {name: one for name, one in old.items() if not one.is_named}
    unnamed = {name: one for name, one in new.items() if not one.is_named}
    _pair_equal(free, unnamed, lambda one: (one.shape, one.loose), pair, is_certain=False)
    return matched


def _pair_equal(
    old: Mapping[str, StoreDescription],
    new: Mapping[str, StoreDescription],
    about: Callable[[StoreDescription], Hashable],
    pair: Callable[[StoreDescription, StoreDescription], None],
    *,
    is_certain: bool = True,
) -> None:
    """Pair the stores that are alike, in their order. Those with equal functions and inputs have equal rows, so it is
    certain that they may be paired, however many they are.
    """
    others = _grouped(old.values(), about)
    for alike, later in _grouped(new.values(), about).items():
        earlier = others.get(alike, [])
        if earlier and not is_certain and (len(earlier), len(later)) != (1, 1):
            raise CheckpointError(_uncertain(earlier, later))
        for one, other in zip(earlier, later, strict=False):
            if one.fits(other):
                pair(one, other)


def _grouped(stores: Iterable[StoreT], about: Callable[[StoreT], KeyT]) -> dict[KeyT, list[StoreT]]:
    groups: dict[KeyT, list[StoreT]] = {}
    for one in stores:
        groups.setdefault(about(one), []).append(one)
    return groups


def _uncertain(earlier: Iterable[StoreDescription], later: Iterable[StoreDescription]) -> str:
    before, now = (", ".join(one.name for one in stores) for stores in (earlier, later))
    return (
        f"stores without names are ambiguous: the state has {before}, and the program {now}. Map them with "
        "--keep OLD=NEW or --drop OLD, and give them names (name=...)"
    )


def _choice(stores: Mapping[str, StoreDescription]) -> str:
    return f"there are: {', '.join(stores)}" if stores else "there is none"

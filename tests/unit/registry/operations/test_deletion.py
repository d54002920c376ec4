"""Deleting versions, subjects and contexts."""

from __future__ import annotations

import pytest

from felice.registry.errors import RegistryError
from felice.registry.operations.deletion import delete_context, delete_subject, delete_version
from felice.registry.records import ConfigKey, ConfigValue, ModeKey, ModeValue, Record
from registry_world import World


def world_of(*texts: str, subject: str = "s") -> World:
    world = World()
    for text in texts:
        world.register(subject, text)
    return world


def subject(world: World, name: str = "s", *, permanent: bool = False) -> list[int]:
    written, numbers = delete_subject(world.state, name, permanent=permanent)
    world.write(written)
    return numbers


def version(world: World, number: int, name: str = "s", *, permanent: bool = False) -> int:
    written, deleted = delete_version(world.state, name, number, permanent=permanent, asked=str(number))
    world.write(written)
    return deleted


def numbers(world: World, name: str = "s", *, deleted: bool = False) -> list[int]:
    found = world.state.subject(name)
    return [] if found is None else [v.number for v in found.versions if deleted or not v.deleted]


def refused(code: int, call: object) -> None:
    with pytest.raises(RegistryError) as error:
        call()  # type: ignore[operator]
    assert error.value.code == code
    assert error.value.status == (404 if code == 404 or 40400 < code < 41000 else 422)


def test_a_version_is_deleted_softly_and_then_for_good() -> None:
    world = world_of("a", "a b?")
    refused(40407, lambda: version(world, 1, permanent=True))
    assert version(world, 1) == 1
    assert (numbers(world), numbers(world, deleted=True)) == ([2], [1, 2])
    refused(40406, lambda: version(world, 1))
    assert version(world, 1, permanent=True) == 1
    assert numbers(world, deleted=True) == [2]
    refused(40402, lambda: version(world, 1))
    refused(40401, lambda: version(world, 1, "other"))


def test_the_latest_version_is_the_highest_that_is_there() -> None:
    world = world_of("a", "a b?", "a c?")
    assert [version(world, -1), version(world, -1), version(world, -1)] == [3, 2, 1]
    refused(40402, lambda: version(world, -1))


def test_a_subject_is_deleted_softly_and_then_for_good() -> None:
    world = world_of("a", "a b?", "a c?")
    version(world, 2)
    assert subject(world) == [1, 3], "what was deleted before is not deleted again"
    refused(40404, lambda: subject(world))
    assert subject(world, permanent=True) == [1, 2, 3]
    refused(40401, lambda: subject(world))
    refused(40401, lambda: subject(world, permanent=True))


def test_a_subject_with_versions_that_are_there_is_not_deleted_for_good() -> None:
    world = world_of("a", "a b?")
    version(world, 1)
    refused(40405, lambda: subject(world, permanent=True))


def test_versions_go_on_after_a_soft_deletion() -> None:
    world = world_of("a", "a b?")
    subject(world)
    assert world.register("s", "z").version == 3


def test_nothing_that_is_referred_to_is_deleted() -> None:
    world = world_of("a", subject="r")
    world.register("s", "uses r", references=[("r", "r", 1)])
    for call in (lambda: subject(world, "r"), lambda: version(world, 1, "r")):
        refused(42206, call)
    subject(world)
    assert subject(world, "r") == [1]


def test_the_last_version_takes_the_subjects_settings_along() -> None:
    settings: list[Record] = [
        (ConfigKey("s"), ConfigValue("s", (("compatibilityLevel", "NONE"),))),
        (ModeKey("s"), ModeValue("s", "READWRITE")),
    ]
    world = world_of("a", "a b?")
    world.write(settings)
    version(world, 1)
    assert world.state.config("s") is not None
    version(world, 2)
    assert (world.state.config("s"), world.state.mode("s")) == (None, None)
    world = world_of("a")
    world.write(settings)
    subject(world)
    assert (world.state.config("s"), world.state.mode("s")) == (None, None)


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
def test_nothing_is_deleted_in_a_mode_that_only_reads(mode: str) -> None:
    world = world_of("a")
    world.write([(ModeKey(None), ModeValue(None, mode))])
    refused(42205, lambda: subject(world))
    refused(42205, lambda: version(world, 1))


def test_an_empty_context_can_be_deleted() -> None:
    world = world_of("a", subject=":.eu:s")
    refused(42211, lambda: delete_context(world.state, ".eu"))
    subject(world, ":.eu:s")
    refused(42211, lambda: delete_context(world.state, ".eu"))
    subject(world, ":.eu:s", permanent=True)
    world.write(delete_context(world.state, ".eu"))
    assert world.state.context_names() == ["."]
    refused(42205, lambda: delete_context(world.state, "."))
    refused(404, lambda: delete_context(world.state, ".eu"))

"""Registering, looking up and comparing schemas."""

from __future__ import annotations

import pytest

from felice.registry.errors import RegistryError
from felice.registry.operations import registration
from felice.registry.records import ConfigKey, ConfigValue, ModeKey, ModeValue, config_members
from felice.registry.requests import SchemaRequest
from felice.registry.rules import metadata_of, rule_set_of
from registry_world import World, schema_record

OWNER = metadata_of({"properties": {"owner": "me"}})


def configure(world: World, subject: str | None, **members: object) -> None:
    world.write([(ConfigKey(subject), ConfigValue(subject, config_members(members)))])


def set_mode(world: World, subject: str | None, mode: str) -> None:
    world.write([(ModeKey(subject), ModeValue(subject, mode))])


def refusal(code: int) -> object:
    return pytest.raises(RegistryError, check=lambda error: error.code == code)


def test_versions_count_by_subject_and_ids_by_context() -> None:
    world = World()
    made = [
        world.register(subject, text)
        for subject, text in [
            ("a", "x"),
            ("a", "x y?"),
            ("b", "x"),
            ("b", "z"),
            (":.eu:a", "z"),
            (":.eu:a", "z"),
        ]
        if not (subject == "b" and text == "z") or configure(world, "b", compatibilityLevel="NONE") is None
    ]
    assert [(value.version, value.id) for value in made] == [(1, 1), (2, 2), (1, 1), (2, 3), (1, 1), (1, 1)]
    assert world.state.context_names() == [".", ".eu"]


def test_a_schema_that_is_there_writes_nothing() -> None:
    world = World()
    world.register("a", "x")
    written = len(world.journal)
    assert world.register("a", "  x ").version == 1
    assert len(world.journal) == written


def test_normalizing_makes_equivalent_texts_one_schema() -> None:
    world = World()
    assert world.register("a", "x y", normalize=True).id == world.register("a", "y x", normalize=True).id == 1
    configure(world, "b", normalize=True)
    assert world.register("b", "y x").id == 1


@pytest.mark.parametrize(
    ("level", "history", "new", "compatible"),
    [
        ("NONE", ["a"], "z", True),
        ("BACKWARD", ["a"], "a b?", True),
        ("BACKWARD", ["a"], "a b", False),
        ("BACKWARD", ["a", "a b?"], "b?", True),
        ("BACKWARD", ["a c?", "a? b?"], "b", True),
        ("BACKWARD_TRANSITIVE", ["a c?", "a? b?"], "b", False),
        ("FORWARD", ["a"], "b", False),
        ("FORWARD", ["a b"], "a b c", True),
        ("FORWARD", ["a", "a b"], "b", False),
        ("FORWARD_TRANSITIVE", ["a", "a b"], "a b c", True),
        ("FORWARD_TRANSITIVE", ["c", "c b"], "b c", True),
        ("FULL", ["a"], "a b?", True),
        ("FULL", ["a"], "a b", False),
        ("FULL", ["a b?"], "b?", False),
        ("FULL_TRANSITIVE", ["a", "b?"], "c?", False),
        ("FULL", ["a", "b?"], "c?", True),
    ],
)
def test_a_level_decides_with_which_versions_a_schema_must_agree(
    level: str, history: list[str], new: str, compatible: bool
) -> None:
    world = World()
    configure(world, "s", compatibilityLevel="NONE")
    for text in history:
        world.register("s", text)
    configure(world, "s", compatibilityLevel=level)
    if compatible:
        world.register("s", new)
        return
    with pytest.raises(RegistryError) as refused:
        world.register("s", new)
    assert (refused.value.status, refused.value.code) == (409, 409)
    assert 'for subject "s", details: [{errorType:' in str(refused.value)
    assert f"compatibility: '{level}'" in str(refused.value)


def test_deleted_versions_are_not_compared() -> None:
    world = World()
    world.register("s", "a")
    world.write([schema_record("s", 1, 1, "a", deleted=True)])
    assert world.register("s", "z").version == 2


def test_only_versions_of_the_same_group_are_compared() -> None:
    world = World()
    configure(world, "s", compatibilityGroup="major")
    one, two = (metadata_of({"properties": {"major": number}}) for number in "12")
    world.register("s", "a", metadata=one)
    assert world.register("s", "z", metadata=two).version == 2
    with refusal(409):
        world.register("s", "q", metadata=one)


def test_metadata_and_rules_pass_to_the_next_version() -> None:
    world = World()
    rules = rule_set_of({"domainRules": [{"name": "r", "mode": "WRITE"}]})
    world.register("s", "a", metadata=OWNER, rules=rules)
    value = world.register("s", "a b?")
    assert (value.content.metadata, value.content.rules) == (OWNER, rules)
    assert world.look_up("s", "a") == (1, 1), "a look-up finds it without metadata, too"
    assert world.register("s", "", metadata=metadata_of({"properties": {"owner": "you"}})).version == 3


def test_the_configuration_adds_metadata_and_rules() -> None:
    world = World()
    configure(
        world,
        None,
        defaultMetadata={"properties": {"owner": "nobody", "team": "t"}},
        overrideMetadata={"properties": {"site": "eu"}},
        defaultRuleSet={"domainRules": [{"name": "r", "mode": "WRITE", "type": "X"}]},
        overrideRuleSet={"domainRules": [{"name": "r", "mode": "READ", "type": "Y"}]},
    )
    content = world.register("s", "a", metadata=OWNER).content
    assert dict(content.metadata.properties) == {"owner": "me", "team": "t", "site": "eu"}  # type: ignore[union-attr]
    assert [rule.type for rule in content.rules.domain or ()] == ["Y"]  # type: ignore[union-attr]
    assert not registration.answers_at_once(world.state, "s", SchemaRequest("a"))


def test_a_version_in_the_request_is_noted_in_the_metadata() -> None:
    world = World()
    assert world.register("s", "a", version=1).content.metadata == metadata_of(
        {"properties": {"confluent:version": "1"}}
    )
    assert world.register("s", "a b?", version=-1).content.metadata == metadata_of(
        {"properties": {"confluent:version": "2"}}
    )
    assert world.register("s", "a c?").content.metadata == metadata_of(
        {"properties": {"confluent:version": "3"}}
    )
    with refusal(42201):
        world.register("s", "a d?", version=7)


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_schema_is_refused_for_a_new_subject(text: str) -> None:
    with refusal(42201):
        World().register("s", text)


def test_a_text_that_is_no_schema_is_refused() -> None:
    with pytest.raises(
        RegistryError, match="Invalid schema of type AVRO, details: it has the word bad"
    ) as refused:
        World().register("s", "bad")
    assert refused.value.code == 42201
    with pytest.raises(RegistryError, match="Invalid schema type XML"):
        World().register("s", "x", schema_type="XML")


class TestReferences:
    def test_the_latest_version_is_stored_by_its_number(self) -> None:
        world = World()
        world.register("r", "a")
        world.register("r", "a b?")
        value = world.register("s", "uses r.x", references=[("r.x", "r", -1)])
        assert [reference.version for reference in value.content.references] == [2]
        assert world.state.referring_ids("r", 2) == [value.id]
        assert world.state.referring_ids("r", 1) == []

    def test_an_unknown_one_is_refused(self) -> None:
        world = World()
        world.register("r", "a")
        for subject, version in (("q", 1), ("r", 2), ("q", -1)):
            with pytest.raises(RegistryError, match=f'No schema reference found for subject "{subject}"'):
                world.register("s", "uses r", references=[("r", subject, version)])

    def test_a_deleted_one_is_refused_for_a_new_schema_and_found_by_a_look_up(self) -> None:
        world = World()
        world.register("r", "a")
        world.register("s", "uses r", references=[("r", "r", 1)])
        world.write([schema_record("r", 1, 1, "a", deleted=True)])
        with refusal(42201):
            world.register("t", "uses r", references=[("r", "r", 1)])
        assert world.look_up("s", "uses r", references=[("r", "r", 1)]) == (1, 2)

    def test_references_of_references_come_first(self) -> None:
        world = World()
        world.register("base", "a")
        world.register("mid", "uses base", references=[("base", "base", 1)])
        drafted = registration.draft(
            world.state,
            "top",
            SchemaRequest("uses mid", references=world.state.subject("mid").versions[0].content.references),  # type: ignore[union-attr]
        )
        assert drafted.referred == (("base", "a"),)
        world.register("top", "uses mid", references=[("mid", "mid", 1)])
        drafted = registration.draft(
            world.state,
            "x",
            SchemaRequest("q", references=world.state.subject("top").versions[0].content.references),  # type: ignore[union-attr]
        )
        assert drafted.referred == (("base", "a"), ("mid", "uses base"))

    def test_names_are_those_of_the_context_of_the_schema(self) -> None:
        world = World()
        world.register(":.eu:r", "a")
        value = world.register(":.eu:s", "uses r", references=[("r", "r", 1)])
        assert world.state.referring_ids(":.eu:r", 1) == [value.id]
        with refusal(42201):
            world.register("s", "uses r", references=[("r", "r", 1)])
        world.register("s", "uses r", references=[("r", ":.eu:r", 1)])

    def test_a_cycle_that_others_wrote_ends(self) -> None:
        from felice.registry.formats.schema import Reference

        world = World()
        world.write(
            [
                schema_record("a", 1, 1, "x", references=(Reference("b", "b", 1),)),
                schema_record("b", 1, 2, "y", references=(Reference("a", "a", 1),)),
            ]
        )
        world.register("c", "uses a", references=[("a", "a", 1)])

    def test_too_much_text_is_refused(self) -> None:
        world = World()
        world.register("r", "a" * 15_000_000)
        world.register("q", "b" * 15_000_000)
        with pytest.raises(RegistryError, match="characters together"):
            world.register("s", "uses r", references=[("r", "r", 1), ("q", "q", 1)])


class TestModes:
    @pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
    def test_read_only_refuses_registrations(self, mode: str) -> None:
        world = World()
        world.register("s", "a")
        set_mode(world, None, mode)
        with pytest.raises(RegistryError, match=r"Subject s in context \. is in read-only mode") as refused:
            world.register("s", "a b?")
        assert refused.value.code == 42205
        assert world.look_up("s", "a") == (1, 1)

    def test_import_takes_id_and_version_and_compares_nothing(self) -> None:
        world = World()
        with refusal(42205):
            world.register("s", "a", id=9)
        set_mode(world, "s", "IMPORT")
        with refusal(42205):
            world.register("s", "a")
        assert world.register("s", "a", id=9, version=3) == world.register("s", "a", id=9, version=3)
        assert world.register("s", "z", id=4).version == 4
        with pytest.raises(
            RegistryError, match=r"Overwrite new schema with id 9 in context \. is not permitted"
        ):
            world.register("s", "q", id=9)
        set_mode(world, "s", "READWRITE")
        assert world.register("t", "new").id == 10

    def test_a_lower_version_may_come_later(self) -> None:
        world = World()
        set_mode(world, "s", "IMPORT")
        for version in (5, 2, 3):
            world.register("s", f"w{version}", id=version, version=version)
        assert [found.number for found in world.state.subject("s").versions] == [2, 3, 5]  # type: ignore[union-attr]


def test_a_deleted_version_of_the_same_schema_is_replaced() -> None:
    world = World()
    world.register("s", "a")
    world.write([schema_record("s", 1, 1, "a", deleted=True)])
    value = world.register("s", "a")
    assert (value.version, value.id) == (2, 1)
    assert [found.number for found in world.state.subject("s").versions] == [2]  # type: ignore[union-attr]


class TestLookUp:
    def test_an_unknown_subject_and_an_unknown_schema_are_told_apart(self) -> None:
        world = World()
        with refusal(40401):
            world.look_up("s", "a")
        world.register("s", "a")
        with refusal(40403):
            world.look_up("s", "b")

    def test_deleted_versions_are_found_if_asked_for(self) -> None:
        world = World()
        world.register("s", "a")
        world.write([schema_record("s", 1, 1, "a", deleted=True)])
        with refusal(40401):
            world.look_up("s", "a")
        assert world.look_up("s", "a", deleted=True) == (1, 1)

    def test_an_unqualified_subject_is_looked_for_in_all_contexts(self) -> None:
        world = World()
        world.register(":.eu:s", "a")
        assert world.look_up("s", "a") == (1, 1)
        with refusal(40403):
            world.look_up("s", "b")
        with refusal(40401):
            world.look_up(":.us:s", "a")

    def test_another_type_with_the_same_text_is_another_schema(self) -> None:
        world = World()
        world.register("s", "a")
        with refusal(40403):
            world.look_up("s", "a", schema_type="JSON")
        assert world.register("t", "a", schema_type="JSON").id == 2


def test_a_draft_changes_with_what_matters_to_it() -> None:
    world = World()
    world.register("s", "a")
    world.register("r", "r")
    request = SchemaRequest("a b?")

    def drafted() -> registration.Draft:
        return registration.draft(world.state, "s", request)

    first = drafted()
    world.register("other", "q")
    configure(world, "other", compatibilityLevel="NONE")
    assert drafted() == first
    world.register("s", "a c?")
    assert drafted() != first
    second = drafted()
    configure(world, None, compatibilityLevel="FULL")
    assert drafted() != second


def test_only_the_versions_of_the_level_are_parsed() -> None:
    world = World()
    for number in range(20):
        world.register("s", f"a w{number}?")
    drafted = registration.draft(world.state, "s", SchemaRequest("a"))
    assert [version.number for version, _ in drafted.compared] == [20]


def test_compatibility_with_one_version_names_what_is_missing() -> None:
    world = World()
    world.register("s", "a")
    assert registration.check_against(world.state, "new", -1) == ()
    with refusal(40401):
        registration.check_against(world.state, "new", 1)
    with refusal(40402):
        registration.check_against(world.state, "s", 2)

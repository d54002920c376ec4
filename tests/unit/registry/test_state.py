"""The state follows from the journal alone."""

from __future__ import annotations

import random

import pytest

from felice.registry.formats.schema import Reference
from felice.registry.records import (
    ClearSubjectKey,
    ClearSubjectValue,
    ConfigKey,
    ConfigValue,
    ContextKey,
    ContextValue,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    ModeValue,
    Record,
    SchemaKey,
)
from felice.registry.state import State
from registry_world import World, picture, schema_record

# A journal that Confluent's registry wrote: two subjects, a context, a deletion and settings.
CONFLUENT = """
{"keytype":"NOOP","magic":0}|
{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}|{"subject":"a-value","version":1,"id":1,"schema":"\\"int\\"","deleted":false}
{"keytype":"SCHEMA","subject":"a-value","version":2,"magic":1}|{"subject":"a-value","version":2,"id":2,"schema":"\\"long\\"","deleted":false}
{"keytype":"SCHEMA","subject":"b-value","version":1,"magic":1}|{"subject":"b-value","version":1,"id":1,"schema":"\\"int\\"","deleted":false}
{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}|{"tenant":"default","context":".eu"}
{"keytype":"SCHEMA","subject":":.eu:a","version":1,"magic":1}|{"subject":":.eu:a","version":1,"id":1,"schemaType":"JSON","schema":"{}","deleted":false}
{"keytype":"CONFIG","subject":null,"magic":0}|{"compatibilityLevel":"FULL"}
{"keytype":"CONFIG","subject":"a-value","magic":0}|{"subject":"a-value","compatibilityLevel":"NONE"}
{"keytype":"MODE","subject":"a-value","magic":0}|{"subject":"a-value","mode":"READONLY"}
{"keytype":"MODE","subject":"a-value","magic":0}|
{"keytype":"SCHEMA","subject":"a-value","version":1,"magic":1}|{"subject":"a-value","version":1,"id":1,"schema":"\\"int\\"","deleted":true}
{"keytype":"DELETE_SUBJECT","subject":"b-value","magic":0}|{"subject":"b-value","version":1}
{"keytype":"SCHEMA","subject":"b-value","version":2,"magic":1}|{"subject":"b-value","version":2,"id":3,"schema":"\\"bytes\\"","deleted":false}
"""


def confluent_journal() -> list[tuple[bytes, bytes | None]]:
    lines = (line.partition("|") for line in CONFLUENT.strip().splitlines())
    return [(key.encode(), value.encode() or None) for key, _, value in lines]


def test_a_journal_of_confluents_registry_gives_its_state() -> None:
    state = World().replayed(confluent_journal())
    assert list(state.names("")) == ["a-value", "b-value"]
    assert list(state.names(":*:")) == [":.eu:a", "a-value", "b-value"]
    assert [(v.number, v.id, v.deleted) for v in state.subject("a-value").versions] == [  # type: ignore[union-attr]
        (1, 1, True),
        (2, 2, False),
    ]
    assert [(v.number, v.id, v.deleted) for v in state.subject("b-value").versions] == [  # type: ignore[union-attr]
        (1, 1, True),
        (2, 3, False),
    ]
    assert state.config_in_scope("b-value") == {"compatibilityLevel": "FULL"}
    assert state.config_in_scope("a-value") == {"compatibilityLevel": "NONE"}
    assert state.mode_in_scope("a-value") == "READWRITE"
    assert state.context_names() == [".", ".eu"]
    assert (state.context(".").highest_id, state.context(".eu").highest_id) == (3, 1)


def test_a_journal_of_confluents_registry_goes_on() -> None:
    world = World()
    for key, value in confluent_journal():
        world.read(key, value)
    world.write([(ModeKey("a-value"), None)])
    assert world.register("a-value", "word").version == 3
    assert world.register("c-value", "word").id == 4
    assert world.journal[-1] == (
        b'{"keytype":"SCHEMA","subject":"c-value","version":1,"magic":1}',
        b'{"subject":"c-value","version":1,"id":4,"schema":"word","deleted":false}',
    )


def random_records(seed: int) -> list[Record]:
    rng = random.Random(seed)
    subjects = ["a", "b", ":.eu:a", ":.us:b"]
    made: list[Record] = []
    for _ in range(60):
        subject, version = rng.choice(subjects), rng.randint(1, 4)
        number = rng.randint(1, 5)
        references = (Reference("r", rng.choice(subjects), rng.randint(1, 2)),) if number == 5 else ()
        made.append(
            rng.choice(
                [
                    *[
                        schema_record(
                            subject,
                            version,
                            number,
                            f"word{number}",
                            references=references,
                            deleted=rng.random() < 0.3,
                        )
                    ]
                    * 8,
                    (SchemaKey(subject, version), None),
                    (DeleteSubjectKey(subject), DeleteSubjectValue(subject, version)),
                    (ConfigKey(subject), ConfigValue(subject, (("compatibilityLevel", "FULL"),))),
                    (ConfigKey(subject), None),
                    (ModeKey(None), ModeValue(None, "READONLY")),
                    (ContextKey(".eu"), ContextValue(".eu")),
                    (ClearSubjectKey(subject), ClearSubjectValue(subject)),
                ]
            )
        )
    return made


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_of_the_state_agree_after_any_journal(seed: int) -> None:
    world = World()
    world.write(random_records(seed))
    state = world.state
    assert picture(state) == picture(world.replayed())
    versions = [v for name in state.names(":*:") for v in state.subject(name).versions]  # type: ignore[union-attr]
    for name in state.names(":*:"):
        subject = state.subject(name)
        assert subject is not None
        assert subject.active == sum(not v.deleted for v in subject.versions)
        assert [v.number for v in subject.versions] == sorted({v.number for v in subject.versions})
    for version in versions:
        context = state.context(version.subject[1:4] if version.subject.startswith(":") else ".")
        assert version.subject in context.uses(version.id)
        used = context.uses(version.id)[version.subject]
        assert used.id == version.id and used in versions
        assert context.highest_id >= version.id
    for context_name in state.context_names():
        context = state.context(context_name)
        assert {
            version.id for version in versions if version in list(context.uses(version.id).values())
        } == set(context.ids)
    for target in {(name, number) for name in ("a", "b", ":.eu:a", ":.us:b") for number in (1, 2)}:
        referring = {
            v.id
            for v in versions
            for r in v.content.references
            if not v.deleted
            and (
                r.subject
                if r.subject.startswith(":") or not v.subject.startswith(":")
                else v.subject[:5] + r.subject
            )
            == target[0]
            and r.version == target[1]
        }
        assert set(state.referring_ids(*target)) == referring


def test_compaction_changes_nothing_while_nothing_was_deleted_by_subject() -> None:
    world = World()
    world.write(
        [record for record in random_records(7) if isinstance(record[0], SchemaKey | ConfigKey | ModeKey)]
    )
    once = World()
    for key, value in world.compacted():
        once.read(key, value)
    compacted = picture(once.state)
    # A subject of which nothing is left leaves its context behind; everything else is the same.
    assert {**picture(world.state), "contexts": None, "uses": None} == {
        **compacted,
        "contexts": None,
        "uses": None,
    }


def test_an_id_of_another_schema_is_refused() -> None:
    world = World()
    world.write([schema_record("a", 1, 1, "one")])
    key, value = schema_record("b", 1, 1, "two")
    fault = world.state.apply((key, value), key.encode(), 0)
    assert fault == "its id 1 belongs to the schema of a version 1"
    assert world.state.subject("b") is None


def test_ids_belong_to_a_context() -> None:
    world = World()
    world.write([schema_record("a", 1, 1, "one"), schema_record(":.eu:a", 1, 1, "two")])
    assert world.state.context(".eu").any_use(1).content.text == "two"  # type: ignore[union-attr]
    assert world.state.context(".").any_use(1).content.text == "one"  # type: ignore[union-attr]


def test_an_id_stays_while_any_subject_has_it() -> None:
    world = World()
    world.write([schema_record("a", 1, 1, "one"), schema_record("b", 1, 1, "one"), (SchemaKey("a", 1), None)])
    assert list(world.state.context(".").uses(1)) == ["b"]
    world.write([(SchemaKey("b", 1), None)])
    assert world.state.context(".").any_use(1) is None
    assert world.state.context(".").highest_id == 1, "the next schema gets another id"


def test_the_key_of_an_old_registry_is_deleted_with_the_new_one() -> None:
    world = World()
    old = b'{"keytype":"CONFIG","subject":null,"magic":0}'
    world.read(old, b'{"compatibilityLevel":"FULL"}')
    world.write([(ConfigKey(None), None)])
    assert [key for key, value in world.journal if value is None] == [b'{"keytype":"CONFIG","magic":0}', old]
    assert world.state.config(None) is None
    world.write([(ConfigKey(None), None)])
    assert world.journal[-1] == (b'{"keytype":"CONFIG","magic":0}', None), "the old key is forgotten"


def test_settings_come_from_the_subject_its_context_and_all_contexts() -> None:
    world = World()
    level = lambda name, text: (ConfigKey(name), ConfigValue(name, (("compatibilityLevel", text),)))  # noqa: E731
    found = lambda name: world.state.config_in_scope(name)["compatibilityLevel"]  # noqa: E731
    assert (found("s"), found(":.eu:s")) == ("BACKWARD", "BACKWARD")
    world.write([level(":.__GLOBAL:", "NONE")])
    assert (found("s"), found(":.eu:s"), found(None)) == ("NONE", "NONE", "NONE")
    world.write([level(None, "FORWARD")])
    assert (found("s"), found(":.eu:s"), found(None)) == ("FORWARD", "NONE", "FORWARD")
    world.write([level(":.eu:", "FULL")])
    assert (found(":.eu:s"), found(":.us:s")) == ("FULL", "NONE")
    world.write([level(":.eu:s", "BACKWARD")])
    assert (found(":.eu:s"), found(":.eu:t")) == ("BACKWARD", "FULL")


def test_a_configuration_without_a_level_leaves_it_to_the_next() -> None:
    world = World()
    world.write([(ConfigKey(None), ConfigValue(None, (("compatibilityLevel", "FULL"),)))])
    world.write([(ConfigKey("s"), ConfigValue("s", (("normalize", True),)))])
    assert world.state.config_in_scope("s") == {"normalize": True, "compatibilityLevel": "FULL"}


def test_override_of_all_subjects_goes_before_a_subjects_mode() -> None:
    world = World()
    world.write([(ModeKey("s"), ModeValue("s", "READWRITE")), (ModeKey(None), ModeValue(None, "READONLY"))])
    assert (world.state.mode_in_scope("s"), world.state.mode_in_scope("t")) == ("READWRITE", "READONLY")
    world.write([(ModeKey(None), ModeValue(None, "READONLY_OVERRIDE"))])
    assert world.state.mode_in_scope("s") == "READONLY_OVERRIDE"


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        (":*:", [":.eu:a", ":.eu:b", "a", "ab"]),
        (":*:a", [":.eu:a", "a", "ab"]),
        ("", ["a", "ab"]),
        (":.:", ["a", "ab"]),
        ("a", ["a", "ab"]),
        (":.:ab", ["ab"]),
        (":.eu:", [":.eu:a", ":.eu:b"]),
        (":.eu:b", [":.eu:b"]),
        (":.e:", []),
        ("x", []),
    ],
)
def test_a_prefix_of_names_is_within_one_context(prefix: str, names: list[str]) -> None:
    world = World()
    for at, name in enumerate(("a", "ab", ":.eu:a", ":.eu:b")):
        world.write([schema_record(name, 1, at + 1, f"word{at}")])
    assert list(world.state.names(prefix)) == names


def test_contents_of_one_id_are_kept_once() -> None:
    world = World()
    world.write([schema_record("a", 1, 1, "one " * 100), schema_record("b", 1, 1, "one " * 100)])
    first, second = (world.state.subject(name).versions[0] for name in "ab")  # type: ignore[union-attr]
    assert first.content is second.content


def test_a_context_of_another_tenant_is_none_of_ours() -> None:
    state = State()
    state.apply((ContextKey(".eu", "other"), ContextValue(".eu", "other")), b"", 0)
    assert state.context_names() == ["."]

"""The records of `_schemas`: exactly the bytes that Confluent's registry writes, and every damage named."""

from __future__ import annotations

import json

import pytest

from felice.registry.content import Content
from felice.registry.formats.schema import Reference
from felice.registry.records import (
    ClearSubjectKey,
    ClearSubjectValue,
    ConfigKey,
    ConfigValue,
    ContextKey,
    ContextValue,
    DamagedRecord,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    ModeValue,
    NoopKey,
    Record,
    SchemaKey,
    SchemaValue,
    UnknownRecord,
    decode,
    encode,
)
from felice.registry.rules import metadata_of, rule_set_of

METADATA = {
    "tags": {"a.b": ["PII", "TOP"]},
    "properties": {"owner": "me", "x": "ä"},
    "sensitive": ["owner"],
}
RULES = {
    "migrationRules": [
        {
            "name": "up",
            "kind": "TRANSFORM",
            "mode": "UPGRADE",
            "type": "JSONATA",
            "expr": "$",
            "disabled": False,
        }
    ],
    "domainRules": [
        {
            "name": "check",
            "doc": "why",
            "kind": "CONDITION",
            "mode": "WRITE",
            "type": "CEL",
            "tags": ["PII"],
            "params": {"a": "1"},
            "expr": "message.x > 1",
            "onSuccess": "NONE",
            "onFailure": "ERROR",
            "disabled": True,
        }
    ],
}
AVRO_TEXT = '{"type":"record","name":"User","fields":[{"name":"id","type":"int"}]}'

# Key and value as Confluent's registry writes them, and what they mean.
CONFLUENT: list[tuple[str, str | None, Record]] = [
    ('{"keytype":"NOOP","magic":0}', None, (NoopKey(), None)),
    (
        '{"keytype":"SCHEMA","subject":"users-value","version":1,"magic":1}',
        '{"subject":"users-value","version":1,"id":1,"schema":'
        '"{\\"type\\":\\"record\\",\\"name\\":\\"User\\",\\"fields\\":[{\\"name\\":\\"id\\",\\"type\\":\\"int\\"}]}",'
        '"deleted":false}',
        (SchemaKey("users-value", 1), SchemaValue("users-value", 1, 1, Content("AVRO", AVRO_TEXT))),
    ),
    (
        '{"keytype":"SCHEMA","subject":":.eu:p","version":3,"magic":1}',
        '{"subject":":.eu:p","version":3,"id":12,"schemaType":"PROTOBUF",'
        '"references":[{"name":"a.proto","subject":"a","version":1}],'
        '"metadata":{"tags":{"a.b":["PII","TOP"]},"properties":{"owner":"me","x":"ä"},"sensitive":["owner"]},'
        '"ruleSet":{"migrationRules":[{"name":"up","kind":"TRANSFORM","mode":"UPGRADE","type":"JSONATA",'
        '"expr":"$","disabled":false}],"domainRules":[{"name":"check","doc":"why","kind":"CONDITION",'
        '"mode":"WRITE","type":"CEL","tags":["PII"],"params":{"a":"1"},"expr":"message.x > 1",'
        '"onSuccess":"NONE","onFailure":"ERROR","disabled":true}]},'
        '"schema":"syntax = \\"proto3\\";\\nimport \\"a.proto\\";\\n","deleted":true}',
        (
            SchemaKey(":.eu:p", 3),
            SchemaValue(
                ":.eu:p",
                3,
                12,
                Content(
                    "PROTOBUF",
                    'syntax = "proto3";\nimport "a.proto";\n',
                    (Reference("a.proto", "a", 1),),
                    metadata_of(METADATA),
                    rule_set_of(RULES),
                ),
                deleted=True,
            ),
        ),
    ),
    ('{"keytype":"SCHEMA","subject":"gone","version":2,"magic":1}', None, (SchemaKey("gone", 2), None)),
    (
        '{"keytype":"CONFIG","magic":0}',
        '{"compatibilityLevel":"FULL_TRANSITIVE"}',
        (ConfigKey(None), ConfigValue(None, (("compatibilityLevel", "FULL_TRANSITIVE"),))),
    ),
    (
        '{"keytype":"CONFIG","subject":"users-value","magic":0}',
        '{"subject":"users-value","alias":"people","normalize":true,"compatibilityLevel":"NONE",'
        '"compatibilityGroup":"major","defaultMetadata":{"properties":{"owner":"me"}}}',
        (
            ConfigKey("users-value"),
            ConfigValue(
                "users-value",
                (
                    ("alias", "people"),
                    ("normalize", True),
                    ("compatibilityLevel", "NONE"),
                    ("compatibilityGroup", "major"),
                    ("defaultMetadata", {"properties": {"owner": "me"}}),
                ),
            ),
        ),
    ),
    ('{"keytype":"CONFIG","subject":"users-value","magic":0}', None, (ConfigKey("users-value"), None)),
    (
        '{"keytype":"MODE","magic":0}',
        '{"mode":"READONLY_OVERRIDE"}',
        (ModeKey(None), ModeValue(None, "READONLY_OVERRIDE")),
    ),
    (
        '{"keytype":"MODE","subject":":.eu:","magic":0}',
        '{"subject":":.eu:","mode":"IMPORT"}',
        (ModeKey(":.eu:"), ModeValue(":.eu:", "IMPORT")),
    ),
    (
        '{"keytype":"DELETE_SUBJECT","subject":"users-value","magic":0}',
        '{"subject":"users-value","version":4}',
        (DeleteSubjectKey("users-value"), DeleteSubjectValue("users-value", 4)),
    ),
    (
        '{"keytype":"CLEAR_SUBJECT","subject":"users-value","magic":0}',
        '{"subject":"users-value"}',
        (ClearSubjectKey("users-value"), ClearSubjectValue("users-value")),
    ),
    (
        '{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}',
        '{"tenant":"default","context":".eu"}',
        (ContextKey(".eu"), ContextValue(".eu")),
    ),
]


@pytest.mark.parametrize(("key", "value", "record"), CONFLUENT)
def test_a_record_of_confluents_registry_is_read(key: str, value: str | None, record: Record) -> None:
    assert decode(key.encode(), None if value is None else value.encode()) == record


@pytest.mark.parametrize(("key", "value", "record"), CONFLUENT)
def test_a_record_has_the_bytes_of_confluents_registry(key: str, value: str | None, record: Record) -> None:
    written_key, written_value = encode(record)
    assert written_key.decode() == key
    assert (None if written_value is None else written_value.decode()) == value


@pytest.mark.parametrize(
    ("key", "value", "record"),
    [
        (  # Confluent's registry before version 5
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":0}',
            '{"subject":"s","version":1,"id":7,"schema":"\\"int\\""}',
            (SchemaKey("s", 1), SchemaValue("s", 1, 7, Content("AVRO", '"int"'))),
        ),
        (
            '{"keytype":"CONFIG","subject":null,"magic":0}',
            '{"compatibilityLevel":"FULL"}',
            (ConfigKey(None), ConfigValue(None, (("compatibilityLevel", "FULL"),))),
        ),
        (  # members in another order, spaces, and members of a later version
            '{"magic": 1, "version": 1, "subject": "s", "keytype": "SCHEMA"}',
            '{"ts":1,"offset":9,"guid":"g","deleted":false,"schema":"x","id":7,"version":1,"subject":"s",'
            '"schemaType":null,"references":null,"metadata":null}',
            (SchemaKey("s", 1), SchemaValue("s", 1, 7, Content("AVRO", "x"))),
        ),
        (
            '{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}',
            '{"subject":"s","version":0}',
            (DeleteSubjectKey("s"), DeleteSubjectValue("s", 0)),
        ),
    ],
)
def test_a_record_of_another_version_is_read(key: str, value: str, record: Record) -> None:
    assert decode(key.encode(), value.encode()) == record


def test_members_of_a_configuration_that_a_later_version_wrote_are_kept() -> None:
    key = b'{"keytype":"CONFIG","subject":"s","magic":0}'
    value = b'{"subject":"s","compatibilityLevel":"FULL","strange":{"a":[1]},"offset":3,"ts":4}'
    assert encode(decode(key, value))[1] == b'{"subject":"s","compatibilityLevel":"FULL","strange":{"a":[1]}}'


def test_the_fingerprint_of_encrypted_metadata_is_kept() -> None:
    value = (
        b'{"subject":"s","version":1,"id":1,"md5":"AAECAwQFBgcICQoLDA0ODw==",'
        b'"metadata":{"properties":{"__enc__":"true","secret":"c2VjcmV0"}},"schema":"x","deleted":false}'
    )
    record = decode(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', value)
    assert isinstance(record[1], SchemaValue)
    assert record[1].content.guid() == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert encode(record)[1] == value


@pytest.mark.parametrize(
    ("text", "in_json"),
    [
        ("\x1f\x00", '"\\u001F\\u0000"'),
        ("\\u001f", '"\\\\u001f"'),
        ('a\tb\nc"d\\e/\x7fü€😀', '"a\\tb\\nc\\"d\\\\e/\x7fü€😀"'),
        ("half \ud83d", '"half ?"'),
    ],
)
def test_texts_are_escaped_as_jackson_does(text: str, in_json: str) -> None:
    value = SchemaValue("s", 1, 1, Content("AVRO", text)).encode()
    assert f'"schema":{in_json},'.encode() in value


KEY = '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
VALUE = {"subject": "s", "version": 1, "id": 1, "schema": "x", "deleted": False}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, "{}", "the key is null"),
        ("", None, "the key is not JSON"),
        ("{", None, "the key is not JSON"),
        ("\xff", None, "the key is not JSON"),
        ("[]", None, "the key is not a JSON object"),
        ("[" * 100_000, None, "the key is not JSON"),
        ("{}", None, "the key has no keytype"),
        ('{"keytype":5}', None, "the key has no keytype"),
        ('{"keytype":"SCHEMA","version":1}', None, "subject is not a text"),
        ('{"keytype":"SCHEMA","subject":"s","version":0}', None, "version is not a number from 1"),
        ('{"keytype":"SCHEMA","subject":"s","version":true}', None, "version is not a number from 1"),
        ('{"keytype":"SCHEMA","subject":"s","version":2147483648}', None, "version is not a number"),
        ('{"keytype":"CONTEXT","context":5}', None, "context is not a text"),
        (KEY, "", "the value is not JSON"),
        (KEY, "null", "the value is not a JSON object"),
        (KEY, json.dumps({**VALUE, "version": 2}), "the value is of s version 2"),
        (KEY, json.dumps({**VALUE, "id": -1}), "id is not a number from 0"),
        (KEY, json.dumps({**VALUE, "id": 1.5}), "id is not a number from 0"),
        (KEY, json.dumps({**VALUE, "schema": None}), "schema is not a text"),
        (KEY, json.dumps({**VALUE, "schemaType": 5}), "schemaType is not a text"),
        (KEY, json.dumps({**VALUE, "references": {}}), "references is not an array"),
        (KEY, json.dumps({**VALUE, "references": [5]}), "a reference is not an object"),
        (KEY, json.dumps({**VALUE, "references": [{"name": "n"}]}), "subject is not a text"),
        (KEY, json.dumps({**VALUE, "metadata": []}), "metadata must be an object"),
        (KEY, json.dumps({**VALUE, "ruleSet": {"domainRules": 5}}), "ruleSet.domainRules must be an array"),
        (KEY, json.dumps({**VALUE, "md5": "x"}), "md5 is not the base64"),
        ('{"keytype":"CONFIG"}', '{"compatibilityLevel":"SOME"}', "unknown compatibilityLevel 'SOME'"),
        ('{"keytype":"CONFIG"}', '{"defaultMetadata":5}', "metadata must be an object"),
        ('{"keytype":"MODE"}', '{"mode":"SOME"}', "unknown mode 'SOME'"),
        ('{"keytype":"DELETE_SUBJECT","subject":"s"}', "{}", "version is not a number from 0"),
    ],
)
def test_a_damaged_record_is_named(key: str | None, value: str | None, reason: str) -> None:
    with pytest.raises(DamagedRecord, match=reason):
        decode(
            None if key is None else key.encode("latin-1"), None if value is None else value.encode("latin-1")
        )


def test_a_record_of_an_unknown_kind_is_told_from_a_damaged_one() -> None:
    with pytest.raises(UnknownRecord, match="ASSOCIATION"):
        decode(b'{"keytype":"ASSOCIATION","tenant":"default"}', b"{}")

"""Felice's client of a registry sends what confluent_kafka's sends, and returns and raises the same."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from felice.client.schema_registry import SchemaRegistryClient, SchemaRegistryError
from unit.client.schema_registry.libraries import (
    FACES,
    FELICE,
    Library,
    Outcome,
    closed,
    outcome,
    same,
    settled,
)
from unit.client.schema_registry.scripted_registry import Registry, served

RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})
OTHER = json.dumps({"type": "record", "name": "S", "fields": [{"name": "b", "type": "string"}]})
ODD = 'a/b c:%2F?&=+"ü'

face = pytest.mark.parametrize("face", FACES)


async def calls(library: Library, *steps: tuple[Any, ...], **conf: Any) -> list[Any]:
    """Call methods of one client by name, and return all results; an error is a result."""
    client, results = library.client(**conf), []
    for name, *arguments in steps:
        keywords = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        made = [one(library) if callable(one) else one for one in arguments]
        made_keywords = {key: one(library) if callable(one) else one for key, one in keywords.items()}
        try:
            results.append(await settled(getattr(client, name)(*made, **made_keywords)))
        except Exception as error:
            results.append((type(error).__name__, str(error) if hasattr(error, "error_code") else ""))
    await closed(client)
    return results


def schema(text: str = RECORD, kind: str = "AVRO", references: Any = None) -> Any:
    def made(library: Library) -> Any:
        used = [library.SchemaReference(*one) for one in references or ()]
        return library.Schema(text, kind, used)

    return made


def full(library: Library) -> Any:
    tags = library.MetadataTags({"R.a": ["PII"]})
    properties = library.MetadataProperties({"owner": "o", "a b": "c&d"})
    params = library.RuleParams({"p": "1"})
    kind, mode = library.RuleKind.TRANSFORM, library.RuleMode.WRITEREAD
    rule = library.Rule("n", "d", kind, mode, None, ["PII"], params, "e", None, "NONE", False)
    metadata = library.Metadata(tags, properties, ["owner"])
    return library.Schema(RECORD, "AVRO", [], metadata, library.RuleSet([], [rule]))


def config(library: Library) -> Any:
    return library.ServerConfig(compatibility=library.ConfigCompatibilityLevel.FULL, compatibility_group="g")


CALLS = {
    "register": [("register_schema", "s", schema()), ("register_schema", "s", schema())],
    "register with normalization": [("register_schema", "s", schema(), True)],
    "register fully": [("register_schema_full_response", "s", full)] * 2,
    "subjects with odd characters": [
        ("register_schema", ODD, schema()),
        ("get_latest_version", ODD),
        ("get_versions", ODD),
        ("get_subjects", {"subject_prefix": ODD}),
        ("delete_subject", ODD),
    ],
    "ids": [
        ("register_schema", "s", schema()),
        ("get_schema", 1),
        ("get_schema", 1),
        ("get_schema", 1, "s"),
        ("get_schema", 1, "other", {"fmt": "resolved"}),
        ("get_schema", 1, "third", {"fmt": "a b", "reference_format": "qualified"}),
        ("get_schema", 77),
    ],
    "guids": [
        ("register_schema", "s", full),
        ("get_schema_by_guid", "00000000-0000-0000-0000-000000000000"),
    ],
    "where an id is used": [
        ("register_schema", "s", schema()),
        ("get_subjects_by_schema_id", 1),
        ("get_subjects_by_schema_id", 1, "s", True, 2, 3),
        ("get_schema_versions", 1),
        ("get_schema_versions", 1, "s", True, 2, 3),
    ],
    "lookup": [
        ("lookup_schema", "s", schema()),
        ("register_schema", "s", schema()),
        ("lookup_schema", "s", schema()),
        ("lookup_schema", "s", schema()),
        ("lookup_schema", "s", schema(OTHER), True, "resolved", True),
    ],
    "lists": [
        ("get_subjects",),
        ("get_subjects", "p", True, True, 1, 2),
        ("get_versions", "s"),
        ("get_versions", "s", True, True, 1, 2),
        ("get_schema_types",),
        ("get_contexts",),
        ("get_contexts", 1, 2),
    ],
    "versions": [
        ("register_schema", "s", schema()),
        ("register_schema", "s", schema(OTHER)),
        ("get_version", "s", 1),
        ("get_version", "s", 1),
        ("get_version", "s", 2, True, "resolved"),
        ("get_version", "s"),
        ("get_version", "s", 9),
        ("delete_version", "s", 1),
        ("get_version", "s", 1),
        ("delete_version", "s", 2, True),
    ],
    "latest": [
        ("get_latest_version", "s"),
        ("register_schema", "s", schema()),
        ("get_latest_version", "s"),
        ("register_schema", "s", schema(OTHER)),
        ("get_latest_version", "s"),
        ("clear_latest_caches",),
        ("get_latest_version", "s", "resolved"),
        ("clear_caches",),
        ("register_schema", "s", schema()),
    ],
    "latest with metadata": [
        ("register_schema", "s", full),
        ("get_latest_with_metadata", "s", lambda _: {"owner": "o"}),
        ("get_latest_with_metadata", "s", lambda _: {"owner": "o"}),
        ("get_latest_with_metadata", "s", lambda _: {"owner": "o"}, True, "resolved"),
        ("get_latest_with_metadata", "s", lambda _: {}),
        ("get_latest_with_metadata", "s", lambda _: {"owner": "nobody"}),
    ],
    "deleted subjects are forgotten": [
        ("register_schema", "s", schema()),
        ("delete_subject", "s"),
        ("register_schema", "s", schema()),
        ("delete_subject", "s", True),
        ("register_schema", "s", schema()),
    ],
    "references": [
        ("register_schema", "s", schema()),
        ("register_schema", "u", schema('"R"', references=[("R", "s", 1)])),
        ("get_version", "u", 1),
        ("get_referenced_by", "s", 1),
        ("get_referenced_by", "s", "latest", 1, 2),
    ],
    "compatibility": [
        ("test_compatibility", "s", schema()),
        ("test_compatibility", "s", schema('"bad"'), 3, True, True),
        ("test_compatibility_all_versions", "s", schema(), True, True),
        ("set_compatibility", "s", "full"),
        ("get_compatibility", "s"),
        ("set_compatibility", {"level": "NONE"}),
        ("get_compatibility",),
        ("set_compatibility",),
    ],
    "config": [
        ("set_config", "s", config),
        ("get_config", "s"),
        ("delete_config", "s"),
        ("set_config", {"config": config}),
        ("get_config",),
        ("delete_config",),
        ("set_config",),
    ],
    "mode": [
        ("update_mode", "s", "IMPORT", True),
        ("get_mode", "s"),
        ("delete_mode", "s"),
        ("update_global_mode", "READONLY"),
        ("get_global_mode",),
    ],
}


@face
@pytest.mark.parametrize("steps", CALLS.values(), ids=CALLS.keys())
def test_each_call_sends_and_returns_the_same(face: str, steps: Any) -> None:
    assert same(face, lambda library: calls(library, *steps)).seen


@face
def test_associations_are_the_same(face: str) -> None:
    async def scenario(library: Library) -> Any:
        info = library.AssociationCreateOrUpdateInfo("s", "value", "STRONG", True, schema()(library), False)
        request = library.AssociationCreateOrUpdateRequest("t", "lkc-1", "id-1", "topic", [info])
        steps = [
            ("create_association", lambda _: request),
            ("get_associations_by_resource_name", "t", "lkc-1"),
            ("get_associations_by_resource_name", "t", "lkc-1", "topic", ["value"], 1, 2),
            ("delete_associations", "id-1", "topic", ["key", "value"], True),
            ("delete_associations", "id-1"),
            ("get_associations_by_resource_name", "t", "lkc-1"),
        ]
        return await calls(library, *steps)

    assert same(face, scenario).seen


ERRORS = {
    "an error of the registry": [(409, b'{"error_code": 409, "message": "incompatible"}')],
    "an error without a code": [(422, b'{"message": "no"}')],
    "an error that is a list": [(422, b"[]")],
    "an error that is a page": [(404, b"<html>")],
    "retried until it is good": [(503, b""), (500, b"{}"), (200, b'{"id": 5}')],
    "retried until it fails": [(429, b'{"error_code": 42, "message": "later"}')] * 4,
    "an empty answer": [(204, b"")],
    "no answer, then a good one": [(0, b""), (200, b'{"id": 5}')],
    "no answer at all": [(0, b"")] * 4,
}


@face
@pytest.mark.parametrize("script", ERRORS.values(), ids=ERRORS.keys())
def test_failures_are_retried_and_reported_alike(face: str, script: list[tuple[int, bytes]]) -> None:
    def prepare(registry: Registry) -> None:
        registry.script.extend(script)

    async def scenario(library: Library) -> Any:
        client = library.client()
        try:
            return await settled(client.delete_subject("s"))
        finally:
            await closed(client)

    found = same(face, scenario, prepare)
    if "page" not in str(script):
        assert len(found.seen) == len(script)


@face
@pytest.mark.parametrize("order", ["{dead},{live}", "{live},{dead}", " {live}/ "])
def test_another_url_is_tried_when_one_fails(face: str, order: str) -> None:
    async def scenario(library: Library) -> Any:
        url = order.format(dead="http://127.0.0.1:9", live=library.url)
        return await calls(library, ("get_subjects",), ("get_schema", 3), url=url, max_retries=1)

    assert len(same(face, scenario).seen) == 2


CREDENTIALS: dict[str, dict[str, Any]] = {
    "basic": {"basic_auth_user_info": "us:er:pass:word"},
    "static token": {
        "bearer_auth_credentials_source": "STATIC_TOKEN",
        "bearer_auth_token": "secret",
        "bearer_auth_logical_cluster": "lsrc-1",
        "bearer_auth_identity_pool_id": ["p1", "p2"],
    },
}


@face
@pytest.mark.parametrize("conf", CREDENTIALS.values(), ids=CREDENTIALS.keys())
def test_credentials_are_sent_alike(face: str, conf: dict[str, Any]) -> None:
    found = same(face, lambda library: calls(library, ("get_subjects",), **conf))
    assert "authorization" in found.seen[0].headers


@face
def test_credentials_in_the_url_are_sent_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        url = library.url.replace("http://", "http://us%40er:pa%3Ass@")
        return await calls(library, ("get_subjects",), url=url)

    assert same(face, scenario).seen[0].headers["authorization"].startswith("Basic ")


@face
def test_a_custom_provider_of_tokens_is_called_for_each_request(face: str) -> None:
    numbers = iter(range(100))

    def fields(config: dict[str, Any]) -> dict[str, Any]:
        number = next(numbers) % 2
        return {"bearer.auth.token": f"{config['a']}{number}", "bearer.auth.logical.cluster": "c"}

    async def async_fields(config: dict[str, Any]) -> dict[str, Any]:
        return fields(config)

    conf = {
        "bearer_auth_credentials_source": "CUSTOM",
        "bearer_auth_custom_provider_function": async_fields if face == "asyncio" else fields,
        "bearer_auth_custom_provider_config": {"a": "t"},
    }
    found = same(face, lambda library: calls(library, ("get_subjects",), ("get_contexts",), **conf))
    assert [one.headers["authorization"] for one in found.seen] == ["Bearer t0", "Bearer t1"]


CONFIGURATIONS: list[dict[str, Any]] = [
    {"url": None},
    {"url": 5},
    {"url": "ftp://host"},
    {"basic_auth_user_info": "nocolon"},
    {"url": "http://a:b@h", "basic_auth_user_info": "c:d"},
    {"cache_capacity": "x"},
    {"cache_latest_ttl_sec": "x"},
    {"max_retries": "x"},
    {"retries_wait_ms": "x"},
    {"retries_max_wait_ms": "x"},
    {"unknown": 1},
    {"ssl_key_location": "k"},
    {"ssl_key_password": "k"},
    {"ssl_ca_location": "/nowhere"},
    {"ssl_certificate_location": "/nowhere"},
    {"bearer_auth_credentials_source": "NONSENSE"},
    {"bearer_auth_credentials_source": "STATIC_TOKEN"},
    {"bearer_auth_credentials_source": "STATIC_TOKEN", "bearer_auth_logical_cluster": "c"},
    {
        "bearer_auth_credentials_source": "STATIC_TOKEN",
        "bearer_auth_logical_cluster": 5,
        "bearer_auth_token": "t",
    },
    {"bearer_auth_credentials_source": "CUSTOM"},
]


@face
@pytest.mark.parametrize("conf", CONFIGURATIONS, ids=lambda conf: "-".join(map(str, conf)))
def test_wrong_configurations_are_refused_alike(face: str, conf: dict[str, Any]) -> None:
    async def scenario(library: Library) -> Any:
        await closed(library.client(**conf))

    assert same(face, scenario).error is not None


@face
@pytest.mark.parametrize("source", ["OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS"])
def test_tokens_of_clouds_are_refused_by_name(face: str, source: str) -> None:
    conf = {"url": "http://h", "bearer.auth.credentials.source": source}
    with pytest.raises(ValueError, match=f"{source} is not supported"):
        SchemaRegistryClient(conf)


@face
def test_a_proxy_is_used_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        # The registry plays the proxy: the request names the server that it is for.
        address = "http://registry.example:8081"
        return await calls(library, ("get_contexts",), url=address, proxy=library.url)

    [seen] = same(face, scenario).seen
    assert seen.target.startswith("http://registry.example:8081/contexts?")


@face
def test_a_silent_registry_is_left_after_the_time_limit(face: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        async def scenario(library: Library) -> Any:
            return await calls(library, ("get_contexts",), url=url, timeout=0.5, max_retries=1)

        assert same(face, scenario).result == [("ReadTimeout", "")]


@face
def test_a_registry_is_closed_by_its_context_manager_alike(face: str) -> None:
    async def scenario(library: Library) -> Any:
        client = library.client(max_retries=0)
        if face == "asyncio":
            async with client:
                pass
        else:
            with client:
                pass
        await settled(client.get_contexts())

    assert same(face, scenario).fault == ("RuntimeError", None, None, None)


@face
def test_an_answer_without_end_is_left(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("felice.client.schema_registry.client.MAX_ANSWER_BYTES", 100)

    def prepare(registry: Registry) -> None:
        registry.script.append((200, b'"' + b"a" * 1000 + b'"'))

    async def scenario(library: Library) -> Any:
        return await calls(library, ("get_contexts",))

    found = outcome(FELICE, face, scenario, prepare)
    assert found.result == [("ValueError", "")]
    assert len(found.seen) == 1


@face
def test_first_uses_at_the_same_time_register_once(face: str) -> None:
    async def scenario(library: Library) -> Any:
        client = library.client()
        conf = {"subject.name.strategy.type": "TOPIC"}
        serializer = await settled(library.AvroSerializer(client, '"int"', conf=conf))
        if face == "asyncio":
            results = await asyncio.gather(*[serializer(5, library.context()) for _ in range(8)])
        else:
            uses = [asyncio.to_thread(serializer, 5, library.context()) for _ in range(8)]
            results = await asyncio.gather(*uses)
        await closed(client)
        return set(results)

    assert len(same(face, scenario).seen) == 1


def on_felice(steps: list[tuple[Any, ...]], **conf: Any) -> Outcome:
    return outcome(FELICE, "blocking", lambda library: calls(library, *steps, **conf))


def test_a_schema_in_another_format_is_asked_for() -> None:
    # confluent_kafka's cache ignores the format, and returns the text that it has.
    formats = [("get_schema", 1), ("get_schema", 1, {"fmt": "serialized"}), ("get_schema", 1)]
    versions = [("get_version", "s", 1), ("get_version", "s", 1, True, "serialized")]
    found = on_felice([("register_schema", "s", schema()), *formats, *versions])
    assert len(found.seen) == 1 + 2 + 2


def test_properties_with_odd_characters_are_encoded_once() -> None:
    # confluent_kafka encodes them twice, so that no registry finds them.
    steps = [
        ("register_schema", "s", full),
        ("get_latest_with_metadata", "s", lambda _: {"a b": "c&d"}),
    ]
    assert on_felice(steps).result[1].version == 1


def test_the_capacity_bounds_every_cache() -> None:
    texts = [json.dumps({"type": "fixed", "name": "F", "size": size}) for size in range(1, 4)]
    steps = [("register_schema", "s", schema(text)) for text in [*texts, texts[0], texts[2]]]
    assert len(on_felice(steps, cache_capacity=2).seen) == 4


def test_the_latest_version_is_asked_for_again_when_its_life_is_over() -> None:
    steps: list[tuple[Any, ...]] = [("register_schema", "s", schema()), *[("get_latest_version", "s")] * 3]
    assert len(on_felice(steps, cache_latest_ttl_sec=0).seen) == 4
    assert len(on_felice(steps, cache_latest_ttl_sec=1000).seen) == 2


@pytest.mark.parametrize("answer", [b"[]", b'"a"', b"not JSON", b'{"references": 5}', b"[" * 100_000])
def test_an_answer_that_makes_no_sense_is_an_error_in_one_line(answer: bytes) -> None:
    registry = Registry()
    registry.script.append((200, answer))
    with served(registry) as url:
        client = Library(FELICE, "blocking", url, registry).client()
        with client, pytest.raises(SchemaRegistryError, match="answer") as caught:
            client.get_schema(1)
    assert caught.value.error_code == -1
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000

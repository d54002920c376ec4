"""/subjects and /schemas over HTTP."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import pytest

from registry_rest import V1, Rest


async def filled() -> Rest:
    """Subjects a (versions 1, 2), a/b, and c in the context .eu; version 1 of a is deleted."""
    rest = Rest()
    await rest.register("a", "x")
    await rest.register("a", "x y?")
    await rest.register("a%2Fb", "x")
    await rest.register(":.eu:c", "q")
    await rest.call("DELETE", "/subjects/a/versions/1")
    return rest


async def test_a_registration_returns_the_schema_as_it_is_stored() -> None:
    rest = Rest()
    answer = await rest.send("POST", "/subjects/s/versions", {"schema": " x  y? "})
    guid = str(uuid.UUID(bytes=hashlib.md5(b"x y?").digest()))
    assert answer.json() == {"id": 1, "version": 1, "guid": guid, "schema": "x y?"}
    assert answer.headers["content-type"] == V1
    assert await rest.call("GET", "/subjects/s/versions/1") == {
        "subject": "s",
        "version": 1,
        "id": 1,
        "guid": guid,
        "schema": "x y?",
        "ts": 1000,
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/subjects", [":.eu:c", "a", "a/b"]),
        ("/subjects?subjectPrefix=a", ["a", "a/b"]),
        ("/subjects?subjectPrefix=:.eu:", [":.eu:c"]),
        ("/subjects?subjectPrefix=", ["a", "a/b"]),
        ("/subjects?subjectPrefix=:*:c", [":.eu:c"]),
        ("/subjects?offset=1&limit=1", ["a"]),
        ("/subjects?offset=9", []),
        ("/subjects?deleted=true", [":.eu:c", "a", "a/b"]),
        ("/subjects?deletedOnly=true", []),
        ("/subjects?limit=x", (400, 400)),
        ("/contexts/.eu/subjects", [":.eu:c"]),
        ("/contexts/eu/subjects", [":.eu:c"]),
        ("/contexts/:.eu:/subjects", [":.eu:c"]),
        ("/contexts/.eu/subjects?subjectPrefix=x", []),
        ("/contexts", [".", ".eu"]),
        ("/subjects/a/versions", [2]),
        ("/subjects/a/versions?deleted=true", [1, 2]),
        ("/subjects/a/versions?deletedOnly=true", [1]),
        ("/subjects/a/versions?deletedAsNegative=true", [-1, 2]),
        ("/subjects/a%2Fb/versions", [1]),
        ("/subjects/a/b/versions", (404, 404)),
        ("/subjects/c/versions", (404, 40401)),
        ("/subjects/:.eu:c/versions", [1]),
        ("/contexts/.eu/subjects/c/versions", [1]),
        ("/subjects/z/versions", (404, 40401)),
        ("/subjects/a/versions/1", (404, 40402)),
        ("/subjects/z/versions/1", (404, 40401)),
        ("/subjects/a/versions/0", (422, 42202)),
        ("/subjects/a/versions/-2", (422, 42202)),
        ("/subjects/a/versions/abc", (422, 42202)),
        ("/subjects/a/versions/2147483648", (422, 42202)),
        ("/subjects/a/versions/" + "9" * 5000, (422, 42202)),
        ("/subjects/a/versions/1/referencedby", []),
        ("/subjects/a/versions/2?findTags=true", (422, 422)),
        ("/schemas/types", ["JSON", "PROTOBUF", "AVRO"]),
        ("/schemas/ids/9", (404, 40403)),
        ("/schemas/ids/abc", (404, 404)),
        ("/schemas/ids/-1", (404, 404)),
        ("/schemas/ids/99999999999", (404, 404)),
        ("/schemas/ids/1/subjects", ["a/b"]),
        ("/schemas/ids/1/subjects?deleted=true", ["a", "a/b"]),
        ("/schemas/ids/1/subjects?deleted=true&offset=1&limit=1", ["a/b"]),
        ("/schemas/ids/1/versions", [{"subject": "a/b", "version": 1}]),
        ("/schemas/ids/1/versions?subject=:.eu:", [{"subject": ":.eu:c", "version": 1}]),
        ("/contexts/.eu/schemas/ids/1/versions", [{"subject": ":.eu:c", "version": 1}]),
        ("/schemas/guids/nothing", (404, 40403)),
        ("/schemas/guids/00000000-0000-0000-0000-000000000000/ids", (404, 40403)),
        (
            "/v1/metadata/id",
            {
                "scope": {
                    "path": [],
                    "clusters": {"kafka-cluster": "c1", "schema-registry-cluster": "schema-registry"},
                },
                "id": "",
            },
        ),
        ("/", {}),
        ("/associations/resources/x", (404, 404)),
        ("/dek-registry/v1/keks", (404, 404)),
        ("/subjects/a/versions/latest/tags", (404, 404)),
    ],
)
async def test_reading(path: str, expected: Any) -> None:
    assert await (await filled()).call("GET", path) == expected


@pytest.mark.parametrize("version", ["latest", "-1", "2", "LATEST"])
async def test_the_latest_version_has_several_names(version: str) -> None:
    rest = await filled()
    assert (await rest.call("GET", f"/subjects/a/versions/{version}"))["version"] == 2
    assert (await rest.send("GET", f"/subjects/a/versions/{version}/schema")).text == "x y?"


async def test_a_deleted_version_says_so() -> None:
    rest = await filled()
    found = await rest.call("GET", "/subjects/a/versions/1?deleted=true")
    assert (found["version"], found["deleted"]) == (1, True)


async def test_an_id_is_found_in_the_context_of_the_subject() -> None:
    rest = await filled()
    assert (await rest.call("GET", "/schemas/ids/1"))["schema"] == "x"
    assert (await rest.call("GET", "/schemas/ids/1?subject=:.eu:"))["schema"] == "q"
    assert (await rest.call("GET", "/schemas/ids/1?subject=:.eu:c"))["schema"] == "q"
    assert (await rest.call("GET", "/schemas/ids/1?subject=c"))["schema"] == "q"
    assert (await rest.call("GET", "/schemas/ids/1?subject=unknown"))["schema"] == "x"
    assert await rest.call("GET", "/schemas/ids/1?subject=:.us:c") == (404, 40403)
    assert (await rest.call("GET", "/schemas/ids/1?fetchMaxId=true"))["maxId"] == 2
    assert (await rest.send("GET", "/schemas/ids/1/schema")).text == "x"


async def test_a_guid_finds_the_schema_in_all_contexts() -> None:
    rest = await filled()
    await rest.register(":.eu:d", "x")
    guid = (await rest.call("GET", "/subjects/a%2Fb/versions/1"))["guid"]
    found = await rest.call("GET", f"/schemas/guids/{guid}")
    assert (found["schema"], found["guid"], "subject" in found) == ("x", guid, False)
    assert await rest.call("GET", f"/schemas/guids/{guid}/ids") == [
        {"context": ".", "id": 1},
        {"context": ".eu", "id": 2},
    ]
    assert await rest.call("GET", f"/schemas/guids/{guid.replace('-', '')}") == (404, 40403)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [(":.eu:c", 1), ("a", 2), ("a/b", 1)]),
        ("?deleted=true", [(":.eu:c", 1), ("a", 1), ("a", 2), ("a/b", 1)]),
        ("?deleted=true&latestOnly=true", [(":.eu:c", 1), ("a", 2), ("a/b", 1)]),
        ("?deletedOnly=true", [("a", 1)]),
        ("?subjectPrefix=a", [("a", 2), ("a/b", 1)]),
        ("?subjectPrefix=a&offset=1&limit=5", [("a/b", 1)]),
        ("?limit=1", [(":.eu:c", 1)]),
        ("?ruleType=CEL", []),
    ],
)
async def test_schemas_are_listed_by_subject_and_version(query: str, expected: Any) -> None:
    found = await (await filled()).call("GET", f"/schemas{query}")
    assert [(item["subject"], item["version"]) for item in found] == expected


async def test_a_lookup_finds_the_version_of_a_schema() -> None:
    rest = await filled()
    look_up = lambda path, text, **more: rest.call("POST", path, {"schema": text, **more})  # noqa: E731
    found = await look_up("/subjects/a", "x y?")
    assert (found["subject"], found["version"], found["id"], found["schema"]) == ("a", 2, 2, "x y?")
    assert await look_up("/subjects/a", "x") == (404, 40403)
    assert (await look_up("/subjects/a?deleted=true", "x"))["version"] == 1
    assert (await look_up("/subjects/a?normalize=true", "x y?"))["version"] == 2
    assert await look_up("/subjects/z", "x") == (404, 40401)
    assert (await look_up("/subjects/c", "q"))["subject"] == ":.eu:c"
    assert (await look_up("/contexts/.eu/subjects/c", "q"))["subject"] == ":.eu:c"
    assert await look_up("/subjects/a", "bad") == (422, 42201)
    assert await look_up("/subjects/a", "") == (422, 42201)


async def test_deletions_return_what_was_deleted() -> None:
    rest = await filled()
    assert await rest.call("DELETE", "/subjects/a/versions/1") == (404, 40406)
    assert await rest.call("DELETE", "/subjects/a/versions/2?permanent=true") == (404, 40407)
    assert await rest.call("DELETE", "/subjects/a?permanent=true") == (404, 40405)
    assert await rest.call("DELETE", "/subjects/a") == [2]
    assert await rest.call("DELETE", "/subjects/a") == (404, 40404)
    assert await rest.call("DELETE", "/subjects/a?permanent=true") == [1, 2]
    assert await rest.call("DELETE", "/subjects/a") == (404, 40401)
    assert await rest.call("DELETE", "/subjects/a%2Fb/versions/latest") == 1
    assert await rest.call("DELETE", "/subjects/a%2Fb/versions/x") == (422, 42202)
    assert await rest.call("DELETE", "/contexts/.eu") == (422, 42211)
    assert await rest.call("DELETE", "/contexts/.eu/subjects/c") == [1]
    assert await rest.call("DELETE", "/contexts/.eu/subjects/c?permanent=true") == [1]
    assert await rest.call("DELETE", "/contexts/.eu") is None
    assert await rest.call("GET", "/contexts") == ["."]


async def test_references_are_returned_and_kept() -> None:
    rest = Rest()
    await rest.register("r", "x")
    reference = {"name": "r.x", "subject": "r", "version": 1}
    assert await rest.register("s", "uses r.x", references=[reference]) == 2
    assert (await rest.call("GET", "/subjects/s/versions/1"))["references"] == [reference]
    assert await rest.call("GET", "/subjects/r/versions/1/referencedby") == [2]
    assert await rest.call("DELETE", "/subjects/r/versions/1") == (422, 42206)
    assert (await rest.send("GET", "/schemas/ids/2/schema?format=resolved")).text == "uses r.x | x"
    assert (await rest.call("GET", "/subjects/s/versions/1?format=resolved"))["schema"] == "uses r.x | x"


async def test_metadata_is_stored_returned_and_found() -> None:
    rest = Rest()
    metadata = {"properties": {"owner": "me"}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "1"}]}
    await rest.register("s", "x", metadata=metadata, ruleSet=rules)
    await rest.register("s", "x y?", metadata={"properties": {"owner": "you"}})
    found = await rest.call("GET", "/subjects/s/metadata?key=owner&value=me")
    assert (found["version"], found["metadata"]) == (1, metadata)
    assert found["ruleSet"]["domainRules"][0] | {"disabled": False} == rules["domainRules"][0] | {
        "disabled": False
    }
    assert (await rest.call("GET", "/subjects/s/metadata"))["version"] == 2
    assert await rest.call("GET", "/subjects/s/metadata?key=owner&value=nobody") == (404, 40403)
    assert await rest.call("GET", "/subjects/t/metadata") == (404, 40401)
    assert await rest.call("GET", "/subjects/s/metadata?key=owner") == (400, 400)
    assert len(await rest.call("GET", "/schemas?ruleType=CEL")) == 2


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([], (400, 400)),
        ("text", (400, 400)),
        ({"schema": 5}, (400, 400)),
        ({"schema": "x", "schemaType": 5}, (400, 400)),
        ({"schema": "x", "schemaType": "XML"}, (422, 42201)),
        ({"schema": "x", "references": {}}, (400, 400)),
        ({"schema": "x", "references": [5]}, (400, 400)),
        ({"schema": "x", "references": [{}]}, (422, 42201)),
        ({"schema": "x", "references": [{"name": "a", "subject": "q", "version": 1}]}, (422, 42201)),
        ({"schema": "x", "references": [{"name": "a", "subject": "q", "version": 1}] * 1001}, (422, 42201)),
        ({"schema": "x", "id": "1"}, (400, 400)),
        ({"schema": "x", "id": 7}, (422, 42205)),
        ({"schema": "x", "version": 2**40}, (400, 400)),
        ({"schema": "x", "version": 5}, (422, 42201)),
        ({"schema": "x", "metadata": 5}, (422, 422)),
        ({"schema": "x", "metadata": {"properties": {"a": 5}}}, (422, 422)),
        ({"schema": "x", "ruleSet": {"domainRules": [{"name": "1a", "mode": "WRITE"}]}}, (422, 42210)),
        ({"schema": "x", "ruleSet": {"domainRules": [{"name": "a", "mode": "UPGRADE"}]}}, (422, 42210)),
        ({"schema": "x", "ruleSet": {"migrationRules": [{"name": "a", "mode": "READ"}]}}, (422, 42210)),
        ({"schema": "x", "schemaTagsToAdd": [{}]}, (422, 422)),
        ({"schema": "x", "propagateSchemaTags": True}, (422, 422)),
        ({}, (422, 42201)),
        ({"schema": "bad"}, (422, 42201)),
        (b"{", (400, 400)),
        (b"", (400, 400)),
        (b"\xff", (400, 400)),
        (b"[" * 100_000, (400, 400)),
    ],
)
async def test_a_wrong_body_gets_its_error(body: Any, error: tuple[int, int]) -> None:
    rest = Rest()
    assert await rest.call("POST", "/subjects/s/versions", body) == error
    assert rest.topic.log == []


@pytest.mark.parametrize("name", ["__GLOBAL", "a%00b", "a%0Ab", ":.eu:__GLOBAL", "%C2%85"])
async def test_an_impossible_subject_is_refused(name: str) -> None:
    assert await Rest().register(name, "x") == (422, 42208)


@pytest.mark.parametrize("name", ["a%2Fb", "%2E%2E", "a%25b", "ä%20ö", "a:b", ":", "a%3Fb", "latest", "😀"])
async def test_a_subject_may_have_any_other_name(name: str) -> None:
    rest = Rest()
    assert await rest.register(name, "x") == 1
    assert await rest.call("GET", f"/subjects/{name}/versions") == [1]
    assert len(await rest.call("GET", "/subjects")) == 1


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        (V1, 200),
        ("application/vnd.schemaregistry+json", 200),
        ("application/json; charset=utf-8", 200),
        ("application/octet-stream", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ],
)
async def test_content_types_of_requests(content_type: str, status: int) -> None:
    answer = await Rest().send(
        "POST", "/subjects/s/versions", b'{"schema":"x"}', headers={"content-type": content_type}
    )
    assert answer.status_code == status
    assert answer.json()["id" if status == 200 else "error_code"] == (1 if status == 200 else 415)


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", V1),
        (f"{V1}, application/vnd.schemaregistry+json, application/json", V1),
        ("application/json", "application/json"),
        (
            "application/vnd.schemaregistry+json; q=0.9, application/json; q=0.5",
            "application/vnd.schemaregistry+json",
        ),
    ],
)
async def test_content_types_of_answers(accept: str, given: str) -> None:
    assert (await Rest().send("GET", "/subjects", headers={"accept": accept})).headers[
        "content-type"
    ] == given


@pytest.mark.parametrize(
    ("method", "path"), [("PATCH", "/config"), ("PUT", "/subjects"), ("DELETE", "/subjects")]
)
async def test_other_methods_get_405_in_the_shape_of_the_api(method: str, path: str) -> None:
    answer = await Rest().send(method, path)
    assert (answer.status_code, answer.json()) == (
        405,
        {"error_code": 405, "message": "HTTP 405 Method Not Allowed"},
    )


async def test_a_page_of_another_site_cannot_register() -> None:
    rest = Rest()
    answer = await rest.send(
        "POST", "/subjects/s/versions", b'{"schema":"x"}', headers={"Origin": "http://evil"}
    )
    assert answer.status_code == 415
    assert (await rest.send("POST", "/subjects/s/versions", b'{"schema":"x"}')).status_code == 200

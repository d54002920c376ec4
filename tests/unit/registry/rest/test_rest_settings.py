"""/config, /mode and /compatibility over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from registry_rest import Rest


async def test_the_configuration_of_all_subjects() -> None:
    rest = Rest()
    assert await rest.call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await rest.call("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "full"}
    assert await rest.call("GET", "/config") == {"compatibilityLevel": "FULL"}
    assert await rest.call("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert await rest.call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}


async def test_the_configuration_of_a_subject() -> None:
    rest = Rest()
    assert await rest.call("GET", "/config/s") == (404, 40408)
    assert await rest.call("GET", "/config/s?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert await rest.call("DELETE", "/config/s") == (404, 40401)
    await rest.call(
        "PUT", "/config/s", {"compatibility": "NONE", "normalize": True, "compatibilityGroup": "g"}
    )
    await rest.call("PUT", "/config/s", {"compatibility": "FORWARD", "compatibilityGroup": None})
    assert await rest.call("GET", "/config/s") == {"normalize": True, "compatibilityLevel": "FORWARD"}
    assert await rest.call("DELETE", "/config/s") == {"normalize": True, "compatibilityLevel": "FORWARD"}
    assert await rest.call("GET", "/config/s") == (404, 40408)


async def test_the_configuration_of_a_context() -> None:
    rest = Rest()
    await rest.call("PUT", "/contexts/.eu/config", {"compatibility": "NONE"})
    assert await rest.call("GET", "/config/:.eu:") == {"compatibilityLevel": "NONE"}
    assert await rest.call("GET", "/config/:.eu:s?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}
    assert await rest.call("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    await rest.call("PUT", "/config/:.__GLOBAL:", {"compatibility": "FULL"})
    assert await rest.call("GET", "/config") == {"compatibilityLevel": "FULL"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"compatibility": "SOME"}, (422, 42203)),
        ({"compatibility": 5}, (422, 42203)),
        ({"alias": 5}, (400, 400)),
        ({"normalize": "yes"}, (400, 400)),
        ({"validateFields": True}, (422, 422)),
        ({"validateNames": False}, (422, 422)),
        ({"compatibilityPolicy": "LENIENT"}, (422, 422)),
        ({"defaultMetadata": []}, (422, 422)),
        ({"overrideRuleSet": {"domainRules": [{"name": ""}]}}, (422, 42210)),
        ([], (400, 400)),
    ],
)
async def test_a_wrong_configuration_is_refused(body: Any, error: tuple[int, int]) -> None:
    rest = Rest()
    assert await rest.call("PUT", "/config/s", body) == error
    assert rest.topic.log == []


async def test_an_alias_stands_for_its_subject() -> None:
    rest = Rest()
    await rest.register("orders", "x")
    await rest.call("PUT", "/config/bestellungen", {"alias": "orders"})
    assert await rest.call("GET", "/subjects/bestellungen/versions") == [1]
    assert await rest.register("bestellungen", "x y?") == 2
    assert (await rest.call("POST", "/subjects/bestellungen", {"schema": "x"}))["subject"] == "orders"
    assert await rest.call("GET", "/subjects") == ["orders"]
    found = await rest.call("GET", "/schemas?subjectPrefix=best&aliases=true")
    assert [(item["subject"], item["version"], item["aliases"]) for item in found] == [
        ("orders", 1, ["bestellungen"]),
        ("orders", 2, ["bestellungen"]),
    ]
    assert await rest.call("GET", "/config/bestellungen") == {"alias": "orders"}


async def test_modes() -> None:
    rest = Rest()
    assert await rest.call("GET", "/mode") == {"mode": "READWRITE"}
    assert await rest.call("GET", "/mode/s") == (404, 40409)
    assert await rest.call("GET", "/mode/s?defaultToGlobal=true") == {"mode": "READWRITE"}
    assert await rest.call("PUT", "/mode/s", {"mode": "readonly"}) == {"mode": "READONLY"}
    assert await rest.register("s", "x") == (422, 42205)
    assert await rest.call("PUT", "/config/s", {"compatibility": "NONE"}) == (422, 42205)
    assert await rest.call("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert await rest.call("DELETE", "/mode/s") == (404, 40401)
    assert await rest.call("PUT", "/mode", {"mode": "SOME"}) == (422, 42204)
    assert await rest.call("PUT", "/mode", {}) == (422, 42204)
    await rest.call("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    await rest.call("PUT", "/mode/s", {"mode": "READWRITE"})
    assert await rest.register("s", "x") == (422, 42205)
    assert await rest.call("DELETE", "/mode") == {"mode": "READONLY_OVERRIDE"}
    assert await rest.register("s", "x") == 1


async def test_import_needs_an_empty_subject_or_force() -> None:
    rest = Rest()
    await rest.register("s", "x")
    assert await rest.call("PUT", "/mode/s", {"mode": "IMPORT"}) == (422, 42205)
    assert await rest.call("PUT", "/mode", {"mode": "IMPORT"}) == (422, 42205)
    await rest.call("DELETE", "/subjects/s")
    assert await rest.call("PUT", "/mode/s", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert await rest.call("GET", "/subjects?deleted=true") == []
    assert await rest.register("s", "y", id=100, version=7) == 100
    assert await rest.call("GET", "/subjects/s/versions") == [7]
    assert await rest.call("PUT", "/mode?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}


@pytest.mark.parametrize(
    ("path", "text", "compatible"),
    [
        ("/subjects/s/versions/latest", "b", True),
        ("/subjects/s/versions/latest", "c", False),
        ("/subjects/s/versions/-1", "b", True),
        ("/subjects/s/versions/1", "a", True),
        ("/subjects/s/versions/1", "b", False),
        ("/subjects/s/versions", "b", True),
        ("/subjects/s/versions", "a?", True),
        ("/subjects/new/versions/latest", "z", True),
        ("/subjects/new/versions", "z", True),
    ],
)
async def test_compatibility_is_checked_without_registering(path: str, text: str, compatible: bool) -> None:
    rest = Rest()
    await rest.register("s", "a")
    await rest.register("s", "a b?")
    written = len(rest.topic.log)
    found = await rest.call("POST", f"/compatibility{path}?verbose=true", {"schema": text})
    assert (found["is_compatible"], bool(found["messages"])) == (compatible, not compatible)
    assert await rest.call("POST", f"/compatibility{path}", {"schema": text}) == {"is_compatible": compatible}
    assert len(rest.topic.log) == written


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/subjects/s/versions/9", {"schema": "a"}, (404, 40402)),
        ("/subjects/new/versions/1", {"schema": "a"}, (404, 40401)),
        ("/subjects/s/versions/0", {"schema": "a"}, (422, 42202)),
        ("/subjects/s/versions/1", {"schema": "bad"}, (422, 42201)),
        ("/subjects/s/versions", {"schema": ""}, (422, 42201)),
    ],
)
async def test_a_check_that_is_not_possible_gets_its_error(
    path: str, body: Any, error: tuple[int, int]
) -> None:
    rest = Rest()
    await rest.register("s", "a")
    assert await rest.call("POST", f"/compatibility{path}", body) == error


async def test_all_versions_are_compared_only_at_a_transitive_level() -> None:
    rest = Rest()
    await rest.call("PUT", "/config", {"compatibility": "NONE"})
    for text in ("a", "b"):
        await rest.register("s", text)
    check = lambda: rest.call("POST", "/compatibility/subjects/s/versions", {"schema": "b"})  # noqa: E731
    await rest.call("PUT", "/config", {"compatibility": "BACKWARD"})
    assert await check() == {"is_compatible": True}
    await rest.call("PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert await check() == {"is_compatible": False}

"""The audit log, and the access of clients with and without an authorizer."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from felice.config import BrokerConfig
from felice.protocol.api import API
from felice.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Acl,
    AclsByResource,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from felice.server.process.logs import configure_logs
from felice.server.security import access_control as control
from felice.server.security.access_control import AccessControl

TOPIC = ResourceType.TOPIC
ALLOWED = ResourcePattern(TOPIC, "t")
ACLS: AclsByResource = {ALLOWED: (Acl("User:a", "*", Operation.READ, Permission.ALLOW),)}
AUDIT = logging.getLogger("kafka.authorizer.logger")


def control_of(acls: AclsByResource, **options: str) -> AccessControl:
    config, _ = BrokerConfig.parse({name.replace("_", "."): text for name, text in options.items()})
    return AccessControl(config, lambda: acls)


@pytest.fixture
def access() -> control.Access:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return control_of(ACLS, authorizer_class_name=authorizer).of("User:a", "10.0.0.1", API.FETCH.key)


@pytest.fixture
def lines() -> Iterator[list[tuple[int, str]]]:
    """The level and the text of every line of the audit log, at every level."""
    found: list[tuple[int, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
    level, handlers = AUDIT.level, AUDIT.handlers
    AUDIT.setLevel(1)
    AUDIT.addHandler(handler)
    yield found
    AUDIT.removeHandler(handler)
    AUDIT.setLevel(level)
    AUDIT.handlers = handlers


def test_a_refusal_is_logged_in_kafkas_words(access: control.Access, lines: list[tuple[int, str]]) -> None:
    assert not access.allows(Operation.WRITE, TOPIC, "t")
    assert lines == [
        (
            logging.INFO,
            "Principal = User:a is Denied operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:t "
            "for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny",
        )
    ]


def test_a_permission_is_logged_at_debug_with_its_rule(
    access: control.Access, lines: list[tuple[int, str]]
) -> None:
    assert access.allows(Operation.DESCRIBE, TOPIC, "t")
    ((level, text),) = lines
    assert level == logging.DEBUG
    assert text.startswith("Principal = User:a is Allowed operation = DESCRIBE from host = 10.0.0.1")
    assert text.endswith("based on rule ALLOW User:a from * READ on Topic:LITERAL:t")


def test_questions_that_only_filter_are_logged_at_trace(
    access: control.Access, lines: list[tuple[int, str]]
) -> None:
    access.shows(Operation.READ, TOPIC, "t")
    access.shows(Operation.READ, TOPIC, "hidden")
    access.operations(TOPIC, "t")
    assert [level for level, _ in lines] == [control.TRACE, control.TRACE]


def test_one_request_writes_a_limited_number_of_refusals(
    access: control.Access, lines: list[tuple[int, str]]
) -> None:
    for number in range(10_000):
        access.allows(Operation.READ, TOPIC, f"t{number}")
    assert len(lines) == control.MAX_LINES + 1
    assert "not listed" in lines[-1][1]


def test_a_name_cannot_forge_or_flood_the_audit_log(access: control.Access) -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    try:
        access.allows(Operation.READ, TOPIC, "a\nINFO forged")
        access.allows(Operation.READ, TOPIC, "x" * 30_000)
    finally:
        for name in ("felice", AUDIT.name):
            logging.getLogger(name).handlers = []
            logging.getLogger(name).propagate = True
            logging.getLogger(name).setLevel(logging.NOTSET)
    first, second = stream.getvalue().splitlines()
    assert "INFO kafka.authorizer.logger: Principal = User:a is Denied operation = READ" in first
    assert r"a\nINFO forged" in first
    assert len(second) < 1000
    assert "based on rule DefaultDeny" in second


def test_a_super_user_and_a_resource_without_acls_are_named_as_reasons(lines: list[tuple[int, str]]) -> None:
    name = "kafka.security.authorizer.AclAuthorizer"
    found = control_of(ACLS, authorizer_class_name=name, super_users=" User:a; User:b ;", **_everyone())
    assert found.of("User:b", "h", 0).allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert found.of("User:c", "h", 0).allows(Operation.READ, TOPIC, "free")
    assert not found.of("User:c", "h", 0).allows(Operation.READ, TOPIC, "t")
    assert [text.rpartition(" ")[2] for _, text in lines] == ["SuperUser", "NoAclFoundAllow", "DefaultDeny"]


def _everyone() -> dict[str, str]:
    return {"allow_everyone_if_no_acl_found": "true"}


def test_without_an_authorizer_everything_is_allowed_and_nothing_is_logged(
    lines: list[tuple[int, str]],
) -> None:
    found = control_of(ACLS)
    assert not found.is_enabled
    access = found.of("User:nobody", "h", 0)
    assert access is control.EVERYTHING
    assert access.allows(Operation.WRITE, TOPIC, "t")
    assert access.shows(Operation.WRITE, TOPIC, "t")
    assert access.allows_any(Operation.WRITE, TOPIC)
    # Kafka's bit fields of all operations.
    assert access.operations(TOPIC, "t") == 3576
    assert access.operations(ResourceType.CLUSTER, CLUSTER_NAME) == 8096
    assert access.operations(ResourceType.GROUP, "g") == 3400
    for kind, operations in SUPPORTED_OPERATIONS.items():
        assert access.operations(kind, "x") == sum(1 << operation for operation in operations)
    assert lines == []


def test_new_rules_hold_at_the_next_request() -> None:
    current: list[AclsByResource] = [{}]
    config, _ = BrokerConfig.parse(
        {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    )
    found = AccessControl(config, lambda: current[0])
    assert not found.of("User:a", "h", 0).allows(Operation.READ, TOPIC, "t")
    current[0] = ACLS
    assert found.of("User:a", "h", 0).allows(Operation.READ, TOPIC, "t")
    current[0] = {}
    assert not found.of("User:a", "h", 0).allows(Operation.READ, TOPIC, "t")

"""A broker with an authorizer, Felice or Apache Kafka, and two connections: of a super user and of an anonymous client.

`User:admin` is the only super user. The connection of the client has no permission but those that a test grants.
"""

from __future__ import annotations

import contextlib
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.group_calls import commit, find_coordinator
from conformance.targets import IS_APACHE, SETTINGS
from conformance.topics import create_topic_over, metadata_of, produce_values, wait_until
from conformance.transaction_calls import WireProducer
from conformance.wire import DEFAULT_TIMEOUT_S, Wire, request_header
from felice.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from felice.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from felice.protocol.messages.describe_acls import DescribeAclsRequest
from felice.security.acl import Operation, PatternType, Permission, ResourceType
from felice.server.process.embedded import EmbeddedBroker
from peers.apache_kafka import ApacheKafka, free_port

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN = "User:admin"
ANONYMOUS = "User:ANONYMOUS"
_ANY = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """One ACL to grant. By default it allows the anonymous client."""

    kind: ResourceType
    name: str
    operation: Operation
    permission: Permission = Permission.ALLOW
    principal: str = ANONYMOUS
    host: str = "*"
    pattern: PatternType = PatternType.LITERAL

    def creation(self) -> AclCreation:
        return AclCreation(
            resource_type=self.kind,
            resource_name=self.name,
            resource_pattern_type=self.pattern,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    @property
    def row(self) -> tuple[int, str, int, str, str, int, int]:
        return (
            self.kind,
            self.name,
            self.pattern,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )


class Secured:
    """One running broker. `bootstrap` is the address for the client."""

    def __init__(self, bootstrap: str, admin_address: str, admin: Wire) -> None:
        self.bootstrap = bootstrap
        self.admin_address = admin_address
        self.admin = admin
        self.client = Wire(bootstrap)

    def grant(self, *rules: Rule) -> None:
        """Adds rules, and waits until the broker applies them."""
        if not rules:
            return
        answer = self.admin.ask(CreateAclsRequest(creations=[rule.creation() for rule in rules]))
        assert all(row.error_code == 0 for row in answer.results), answer
        wanted = {rule.row for rule in rules}
        wait_until(lambda: wanted <= self.acls())

    def clear(self) -> None:
        """Removes all rules, and waits until the broker has applied that."""
        everything = DeleteAclsFilter(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        answer = self.admin.ask(DeleteAclsRequest(filters=[everything]))
        assert answer.filter_results[0].error_code == 0, answer
        wait_until(lambda: not self.acls())

    def only(self, *rules: Rule) -> None:
        """Replaces all rules."""
        self.clear()
        self.grant(*rules)

    def acls(self) -> set[tuple[int, str, int, str, str, int, int]]:
        """All rules, as their rows."""
        return rows_of(self.admin.ask(describe_request()))

    def user(self, name: str) -> Wire:
        """A connection of `alice` or `bob`."""
        return log_in(self.admin_address, name)

    def close(self) -> None:
        self.admin.close()
        self.client.close()


def describe_request(
    kind: int = _ANY, name: str | None = None, pattern: int = _ANY, **fields: Any
) -> DescribeAclsRequest:
    """A filter that selects everything else."""
    everything: dict[str, Any] = {
        "principal_filter": None,
        "host_filter": None,
        "operation": _ANY,
        "permission_type": _ANY,
    }
    return DescribeAclsRequest(
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        **{**everything, **fields},
    )


def rows_of(answer: Any) -> set[tuple[int, str, int, str, str, int, int]]:
    assert answer.error_code == 0, answer
    return {
        (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    }


_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret" user_alice="secret" user_bob="secret";'
)

SECURED_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.admin.plain.sasl.jaas.config": _LOGIN,
}
"""Of a Felice broker: one listener without a login, one with."""


@contextlib.contextmanager
def secured_felice(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Secured]:
    """A broker in this process."""
    properties = {
        **SETTINGS,
        "node.id": "1",
        **SECURED_LISTENERS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": ADMIN,
        **(settings or {}),
    }
    with EmbeddedBroker(directory, properties=properties) as broker:
        address = f"127.0.0.1:{broker.broker.port('ADMIN')}"
        found = Secured(broker.bootstrap, address, log_in(address, "admin"))
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def secured_kafka(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Secured]:
    """Apache Kafka. The super user logs in by SASL PLAIN, as do the broker and the controller."""
    kafka = ApacheKafka({**SETTINGS, **(settings or {})}, directory)
    controller, admin = free_port(), free_port()
    kafka.properties |= {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},ADMIN://127.0.0.1:{admin},"
        f"CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},ADMIN://127.0.0.1:{admin}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "ADMIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.admin.plain.sasl.jaas.config": _LOGIN,
        "listener.name.controller.plain.sasl.jaas.config": _LOGIN,
        "authorizer.class.name": AUTHORIZER,
        "super.users": ADMIN,
    }
    with kafka:
        found = Secured(kafka.bootstrap, f"127.0.0.1:{admin}", _serving(f"127.0.0.1:{admin}"))
        try:
            yield found
        finally:
            found.close()


def _serving(address: str) -> Wire:
    """A connection of the super user, once the broker obeys its authorizer."""
    deadline = time.monotonic() + 120
    while True:
        try:
            wire = log_in(address, "admin")
        except OSError:
            assert time.monotonic() < deadline, "the broker does not listen"
            time.sleep(0.1)
            continue
        if wire.ask(describe_request()).error_code == 0:
            return wire
        wire.close()
        assert time.monotonic() < deadline, "the broker does not know its super user"
        time.sleep(0.1)


def log_in(address: str, user: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> Wire:
    """A connection of a user, by SASL PLAIN."""
    wire = Wire(address, timeout_s)
    wire.send_frame(request_header(17, 1, 1, "wire", 1) + _text(b"PLAIN"))
    error = struct.unpack_from(">h", wire.read_frame(), 4)[0]
    assert error == 0, error
    token = b"\0" + user.encode() + b"\0secret"
    wire.send_frame(request_header(36, 0, 2, "wire", 1) + struct.pack(">i", len(token)) + token)
    error = struct.unpack_from(">h", wire.read_frame(), 4)[0]
    assert error == 0, error
    return wire


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def secured(
    directory: Path, settings: Mapping[str, str] | None = None
) -> contextlib.AbstractContextManager[Secured]:
    """The broker under test."""
    return (secured_kafka if IS_APACHE else secured_felice)(directory, settings)


def prepared(broker: Secured) -> uuid.UUID:
    """Creates the topics t and u, offsets of the group g, and the transactional id x. Returns the id of t."""
    for name in ("t", "u"):
        create_topic_over(broker.admin, name)
    produce_values(broker.admin, "t", [b"value"])
    find_coordinator(broker.admin, "g")
    wait_until(lambda: commit(broker.admin, "t", 0, version=8, group_id="g") == 0)
    WireProducer(broker.admin, "x").begin_life()
    found: uuid.UUID = metadata_of(broker.admin, "t").topic_id
    return found

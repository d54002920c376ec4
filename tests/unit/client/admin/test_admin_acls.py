"""Access rules through the admin client: requests, results by rule or filter, and rules that make no sense."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from felice.client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from felice.client.error import KafkaError, KafkaException, failure
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from felice.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from felice.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from unit.client.admin.exchange import TIMEOUT_S, Exchange

READ = AclBinding(
    ResourceType.TOPIC,
    "t",
    ResourcePatternType.PREFIXED,
    "User:alice",
    "10.0.0.1",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
WRITE = AclBinding(
    ResourceType.GROUP,
    "g",
    ResourcePatternType.LITERAL,
    "User:bob",
    "*",
    AclOperation.WRITE,
    AclPermissionType.DENY,
)
EVERY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.MATCH,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)
SOME = AclBindingFilter(*(getattr(READ, field.name) for field in dataclasses.fields(READ)))

ACLS = [
    Exchange(
        "rules are created",
        lambda admin: admin.create_acls([READ, WRITE], request_timeout=TIMEOUT_S),
        [
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=2,
                        resource_name="t",
                        resource_pattern_type=4,
                        principal="User:alice",
                        host="10.0.0.1",
                        operation=3,
                        permission_type=3,
                    ),
                    AclCreation(
                        resource_type=3,
                        resource_name="g",
                        resource_pattern_type=3,
                        principal="User:bob",
                        host="*",
                        operation=4,
                        permission_type=2,
                    ),
                ]
            )
        ],
        [
            CreateAclsResponse(
                results=[
                    AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="why"),
                    AclCreationResult(),
                ]
            )
        ],
        {READ: failure(ErrorCode.SECURITY_DISABLED, "t: why"), WRITE: None},
    ),
    Exchange(
        "rules are found by a filter",
        lambda admin: admin.describe_acls(SOME, request_timeout=TIMEOUT_S),
        [
            DescribeAclsRequest(
                resource_type_filter=2,
                resource_name_filter="t",
                pattern_type_filter=4,
                principal_filter="User:alice",
                host_filter="10.0.0.1",
                operation=3,
                permission_type=3,
            )
        ],
        [
            DescribeAclsResponse(
                resources=[
                    DescribeAclsResource(
                        resource_type=2,
                        resource_name="t",
                        pattern_type=4,
                        acls=[
                            AclDescription(
                                principal="User:alice", host="10.0.0.1", operation=3, permission_type=3
                            )
                        ],
                    ),
                    DescribeAclsResource(
                        resource_type=3,
                        resource_name="g",
                        pattern_type=3,
                        acls=[AclDescription(principal="User:bob", host="*", operation=4, permission_type=2)],
                    ),
                ]
            )
        ],
        [READ, WRITE],
    ),
    Exchange(
        "a filter may match everything, and a broker may refuse it",
        lambda admin: admin.describe_acls(EVERY),
        [
            DescribeAclsRequest(
                resource_type_filter=1,
                resource_name_filter=None,
                pattern_type_filter=2,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
        ],
        [DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message="why")],
        failure(ErrorCode.SECURITY_DISABLED, "why"),
    ),
    Exchange(
        "rules that match a filter are deleted and returned",
        lambda admin: admin.delete_acls([SOME, EVERY], request_timeout=TIMEOUT_S),
        [
            DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=2,
                        resource_name_filter="t",
                        pattern_type_filter=4,
                        principal_filter="User:alice",
                        host_filter="10.0.0.1",
                        operation=3,
                        permission_type=3,
                    ),
                    DeleteAclsFilter(
                        resource_type_filter=1,
                        resource_name_filter=None,
                        pattern_type_filter=2,
                        principal_filter=None,
                        host_filter=None,
                        operation=1,
                        permission_type=1,
                    ),
                ]
            )
        ],
        [
            DeleteAclsResponse(
                filter_results=[
                    DeleteAclsFilterResult(
                        matching_acls=[
                            DeleteAclsMatchingAcl(
                                resource_type=2,
                                resource_name="t",
                                pattern_type=4,
                                principal="User:alice",
                                host="10.0.0.1",
                                operation=3,
                                permission_type=3,
                            )
                        ]
                    ),
                    DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message="why"),
                ]
            )
        ],
        {SOME: [READ], EVERY: failure(ErrorCode.SECURITY_DISABLED, "None: why")},
    ),
]


@pytest.mark.parametrize("exchange", ACLS, ids=str)
def test_acls(exchange: Exchange) -> None:
    assert exchange.perform() == exchange.expected


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": None}, ValueError("name must not be None")),
        ({"principal": None}, ValueError("principal must not be None")),
        ({"host": None}, ValueError("host must not be None")),
        ({"host": 5}, TypeError("host must be a string")),
        *(
            (
                {name: member},
                ValueError(f"{type(member).__name__}.{member.name} cannot be used in AclBinding"),
            )
            for name, members in {
                "restype": (ResourceType.ANY,),
                "resource_pattern_type": (
                    ResourcePatternType.ANY,
                    ResourcePatternType.MATCH,
                ),
                "operation": (AclOperation.ANY,),
                "permission_type": (AclPermissionType.ANY,),
            }.items()
            for member in members
        ),
    ],
    ids=str,
)
def test_a_rule_names_everything(change: dict[str, Any], error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        dataclasses.replace(READ, **change)


def test_names_and_numbers_stand_for_members() -> None:
    named = AclBinding("topic", "t", "LITERAL", "User:a", "*", "read", 3)
    chosen = (ResourceType.TOPIC, ResourcePatternType.LITERAL, AclOperation.READ, AclPermissionType.ALLOW)
    assert (named.restype, named.resource_pattern_type, named.operation, named.permission_type) == chosen


def test_rules_with_unknown_members_are_described_but_not_created() -> None:
    unknown = dataclasses.replace(READ, operation=AclOperation.UNKNOWN)
    with (
        AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin,
        pytest.raises(KafkaException, match="must not have UNKNOWN") as refused,
    ):
        admin.create_acls([unknown])
    assert refused.value.code == KafkaError._INVALID_ARG


def test_a_filter_has_wildcards_but_no_unknown_members() -> None:
    assert dataclasses.replace(SOME, name=None, operation=AclOperation.ANY).name is None
    with pytest.raises(ValueError, match="AclOperation.UNKNOWN cannot be used in AclBindingFilter"):
        dataclasses.replace(SOME, operation=AclOperation.UNKNOWN)
    with pytest.raises(TypeError, match="principal must be a string"):
        dataclasses.replace(SOME, principal=7)


def test_wrong_lists_of_rules_are_refused_at_once() -> None:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        for call, some in ((admin.create_acls, READ), (admin.delete_acls, SOME)):
            with pytest.raises(ValueError, match="at least one rule"):
                call([])
            with pytest.raises(ValueError, match="named twice"):
                call([some, some])
        with pytest.raises(TypeError, match="expected AclBinding$"):
            admin.create_acls([READ, SOME])
        with pytest.raises(TypeError, match="expected a list of AclBindingFilter"):
            admin.delete_acls([SOME, READ])

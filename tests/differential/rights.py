"""Random operations of several users at brokers with an authorizer: the users' requests and the rights that they have.

The administrator makes topics and producers. Then alice, bob, the administrator and a client without a login send the
requests of `generator`, while ACLs, quotas and SCRAM users are created, removed and described.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from differential.generator import Body, OperationGenerator, prepare, random_step
from differential.operation import Operation
from felice.security.acl import CLUSTER_NAME

ADMIN = "admin"
USERS = ("alice", "alice", "alice", "bob", "bob", "", ADMIN)
# Only the administrator changes rights; the others are refused.
KEEPERS = (ADMIN, ADMIN, ADMIN, ADMIN, "alice", "")

_NAMES = {
    2: ("~a", "~a", "~b", "~c", "~missing", "~", "*", "no such"),
    3: ("~g", "~g", "~h", "~", "*"),
    4: (CLUSTER_NAME,),
    5: ("~tx0", "~tx1", "~", "*"),
    7: ("User:alice",),
}
_OPERATIONS = {
    2: (2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 11),
    3: (2, 3, 3, 6, 8, 10),
    4: (2, 5, 5, 7, 8, 9, 10, 11, 12),
    5: (2, 4, 4, 8),
    7: (13, 14),
}
_PRINCIPALS = ("User:alice", "User:alice", "User:bob", "User:*", "User:ANONYMOUS", "user:alice")
_HOSTS = ("*", "*", "*", "127.0.0.1", "10.0.0.1")
_LITERAL, _PREFIXED = 3, 4
_ODD = (
    {"resource_name": ""},
    {"resource_type": 0},
    {"resource_type": 1},
    {"resource_type": 99},
    {"operation": 0},
    {"operation": 1},
    {"operation": 99},
    {"permission_type": 1},
    {"permission_type": 0},
    {"resource_pattern_type": 1},
    {"resource_pattern_type": 2},
    {"resource_pattern_type": 0},
    {"principal": ""},
    {"principal": "alice"},
    {"principal": "User:"},
    {"host": ""},
    {"resource_type": 4, "resource_name": "another-cluster"},
    {"resource_type": 4, "resource_name": CLUSTER_NAME, "resource_pattern_type": 4},
)
_ENTITIES = (
    ("user",),
    ("user",),
    ("client-id",),
    ("user", "client-id"),
    ("ip",),
    ("user", "ip"),
    ("x",),
    (),
)
_QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "no.such",
)


def random_operations_of_users(seed: str, length: int) -> Iterator[Operation]:
    """As `generator.random_operations`, by several users."""
    generator = RightsGenerator(seed)
    for operation in prepare(generator):
        yield replace(operation, user=ADMIN)
    # Without any rule almost every request is refused alike.
    for _ in range(generator.choose(0, 2, 4, 8)):
        yield replace(generator.create_acls(), user=ADMIN)
    for _ in range(length):
        if generator.chance(0.3):
            step = generator.choose(*_STEPS)
            yield replace(step(generator), user=generator.choose(*KEEPERS))
        else:
            yield from of_one_user(generator)


def of_one_user(generator: OperationGenerator) -> Iterator[Operation]:
    user = generator.choose(*USERS)
    for operation in random_step(generator):
        if operation.api not in _CHANGES_FOR_ALL:
            yield replace(operation, user=user)


# With names that do not belong to the run. `RightsGenerator` has its own.
_CHANGES_FOR_ALL = frozenset({"CreateAcls", "DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials"})


class RightsGenerator(OperationGenerator):
    """Chooses operations about rights."""

    def _rule(self) -> Body:
        kind = self.choose(2, 2, 2, 2, 3, 3, 4, 5, 7)
        prefixed = kind in (2, 3, 5) and self.chance(0.3)
        return {
            "resource_type": kind,
            "resource_name": self.choose(*_NAMES[kind]),
            "resource_pattern_type": _PREFIXED if prefixed else _LITERAL,
            "principal": self.choose(*_PRINCIPALS),
            "host": self.choose(*_HOSTS),
            "operation": self.choose(*_OPERATIONS[kind]),
            "permission_type": self.choose(2, 3, 3, 3, 3),
        }

    def create_acls(self) -> Operation:
        rules = [self._rule() for _ in range(self.choose(1, 1, 2, 3))]
        return self.operation("CreateAcls", {"creations": rules})

    def create_odd_acls(self) -> Operation:
        rules = [self._rule(), {**self._rule(), **self.choose(*_ODD)}]
        return self.operation("CreateAcls", {"creations": rules[-self.choose(1, 2) :]})

    def _filter(self) -> Body:
        rule = self._rule()
        return {
            "resource_type_filter": self.choose(1, 1, rule["resource_type"], 0, 99),
            "resource_name_filter": self.choose(None, rule["resource_name"], rule["resource_name"], ""),
            "pattern_type_filter": self.choose(1, 2, 2, 3, 4, 0, 99),
            "principal_filter": self.choose(None, None, rule["principal"], "alice", ""),
            "host_filter": self.choose(None, None, rule["host"]),
            "operation": self.choose(1, 1, 1, rule["operation"], 0, 99),
            "permission_type": self.choose(1, 1, 2, 3, 0, 99),
        }

    def delete_acls(self) -> Operation:
        return self.operation(
            "DeleteAcls", {"filters": [self._filter() for _ in range(self.choose(1, 1, 2))]}
        )

    def describe_acls(self) -> Operation:
        return self.operation("DescribeAcls", self._filter())

    def _entity(self) -> list[Body]:
        kinds = self.choose(
            ("user",), ("user",), ("client-id",), ("user", "client-id"), ("ip",), ("user", "ip"), ("x",), ()
        )
        return [{"entity_type": kind, "entity_name": self._entity_name(kind)} for kind in kinds]

    def _entity_name(self, kind: str) -> str | None:
        if kind == "ip":
            return str(self.choose("10.0.0.1", "10.0.0.2"))
        return str(self.choose("~u", "~v", "~a b", "~%")) if self.chance(0.9) else ""

    def alter_quotas(self) -> Operation:
        keys = self.random.sample(_QUOTAS, self.choose(1, 1, 2))
        ops = [
            {
                "key": key,
                "value": self.choose(0.0, -1.0, 1000.0, 1000.0, 1.5, 1e12, 1e19),
                "remove": self.chance(0.3),
            }
            for key in keys
        ]
        entry = {"entity": self._entity(), "ops": ops}
        return self.operation("AlterClientQuotas", {"entries": [entry], "validate_only": self.chance(0.2)})

    def describe_quotas(self) -> Operation:
        components = [
            {
                "entity_type": part["entity_type"],
                "match_type": (match := self.choose(0, 0, 1, 2, 9)),
                "match": part["entity_name"] if match == 0 else None,
            }
            for part in self._entity()
        ]
        return self.operation("DescribeClientQuotas", {"components": components, "strict": self.chance(0.5)})

    def alter_scram(self) -> Operation:
        upsertion = {
            "name": self.choose("~u", "~v", ""),
            "mechanism": self.choose(1, 2, 2, 0, 3),
            "iterations": self.choose(4096, 8192, 16384, 4095, 16385, 0),
            "salt": "salt",
            "salted_password": self.choose("p" * 32, "p" * 64, ""),
        }
        deletion = {"name": self.choose("~u", "~v", "~w", ""), "mechanism": self.choose(1, 2, 0, 3)}
        upsertions = [upsertion] if self.chance(0.7) else []
        deletions = [deletion] if self.chance(0.4) or not upsertions else []
        return self.operation("AlterUserScramCredentials", {"deletions": deletions, "upsertions": upsertions})

    def describe_scram(self) -> Operation:
        users: Any = self.choose(None, [], [{"name": "~u"}], [{"name": "~u"}, {"name": "~v"}], [{"name": ""}])
        if self.chance(0.1):
            users = [{"name": "~u"}, {"name": "~u"}]
        return self.operation("DescribeUserScramCredentials", {"users": users})

    def describe_own_rights(self) -> Operation:
        """The bits of the operations that a user may do."""
        what = self.choose("DescribeGroups", "Metadata", "DescribeCluster")
        bodies: dict[str, Body] = {
            "DescribeGroups": {"groups": ["~g", "~h"], "include_authorized_operations": True},
            "Metadata": {
                "topics": self.choose(None, [{"name": "~a"}, {"name": "~missing"}]),
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": True,
                "include_topic_authorized_operations": True,
            },
            "DescribeCluster": {"include_cluster_authorized_operations": True},
        }
        return self.operation(what, bodies[what], (8, 13) if what == "Metadata" else None)


_STEPS: tuple[Callable[[RightsGenerator], Operation], ...] = (
    *(RightsGenerator.create_acls,) * 6,
    RightsGenerator.create_odd_acls,
    *(RightsGenerator.delete_acls,) * 2,
    *(RightsGenerator.describe_acls,) * 4,
    *(RightsGenerator.alter_quotas,) * 3,
    *(RightsGenerator.describe_quotas,) * 3,
    *(RightsGenerator.alter_scram,) * 2,
    *(RightsGenerator.describe_scram,) * 2,
    *(RightsGenerator.describe_own_rights,) * 5,
)

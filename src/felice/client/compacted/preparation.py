"""Creates the topic if it is missing, and checks that it can be read as a mapping.

Keeps true:  A topic that exists is never changed. A topic with several partitions, or with a cleanup policy other than
             `compact`, is refused: the first has no order between keys of its partitions, the second loses records.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping

from felice.client.admin.core import Admin
from felice.client.admin.enumerations import ResourceType
from felice.client.admin.model import ConfigResource, NewTopic, TopicDescription
from felice.client.compacted.errors import UnfitTopic
from felice.client.error import KafkaError, KafkaException, error_of, failure
from felice.client.net.cluster import backoff_s
from felice.client.options import AdminSettings
from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode

_POLICY = "cleanup.policy"
_COMPACT = "compact"
_BROKERS_DEFAULT = -1
# For one request; the caller's deadline limits all of them.
_REQUEST_S = 30.0
_MAY_PASS = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as it is wanted: `replication_factor` at most (-1: the brokers' default), and further configs."""

    name: str
    replication_factor: int
    configs: Mapping[str, str]

    def check(self) -> None:
        """Raise `KafkaException` (_INVALID_ARG) for a plan that no broker can fulfil."""
        if not self.name:
            raise failure(KafkaError._INVALID_ARG, "a compacted topic needs a name")
        if self.replication_factor < 1 and self.replication_factor != _BROKERS_DEFAULT:
            raise failure(
                KafkaError._INVALID_ARG,
                f"replication factor {self.replication_factor}: it must be at least 1, or -1 for the brokers' default",
            )
        if _POLICY in self.configs:
            raise failure(KafkaError._INVALID_ARG, f"{_POLICY} of topic {self.name!r} is always {_COMPACT}")


class Preparation:
    """Makes the topic ready, once. Brokers that do not answer, or are too few, are asked again."""

    def __init__(self, settings: AdminSettings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan
        self._log = settings.log("compacted")
        self.reason: KafkaException | None = None
        """Why the last attempt failed."""

    async def ready(self) -> uuid.UUID:
        """Return the topic's id as soon as it exists and was checked; all zeros if brokers have no ids.

        Raises `UnfitTopic`, and `KafkaException` for what a retry cannot resolve. Tries until it is cancelled.
        """
        attempt = 0
        async with Admin(self._settings) as admin:
            while True:
                try:
                    return await self._attempt(admin)
                except KafkaException as error:
                    if not error.error.retriable() and error.code not in _MAY_PASS:
                        raise
                    self.reason = error
                await asyncio.sleep(backoff_s(attempt, 100, 1000, self._settings.env.random))
                attempt += 1

    def tell_why(self, limit_s: float) -> None:
        """Log why the topic is not ready yet, for a person who waits for `limit_s` at most."""
        self._log.warning("waiting up to %g s for topic %s: %s", limit_s, self._plan.name, _why(self.reason))

    async def _attempt(self, admin: Admin) -> uuid.UUID:
        name = self._plan.name
        found = (await admin.describe_topics([name], _REQUEST_S))[name]
        if isinstance(found, KafkaException) and found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create(admin)
            found = (await admin.describe_topics([name], _REQUEST_S))[name]
        if isinstance(found, KafkaException):
            raise found
        assert isinstance(found, TopicDescription)
        await self._check(admin, found)
        return uuid.UUID(bytes=found.topic_id.bytes)

    async def _create(self, admin: Admin) -> None:
        plan = self._plan
        brokers = len((await admin.metadata([], _REQUEST_S)).brokers)
        factor = min(plan.replication_factor, brokers)
        configs = {**plan.configs, _POLICY: _COMPACT}
        wanted = NewTopic(plan.name, 1, factor, config=configs)
        outcome = (await admin.create_topics([wanted], _REQUEST_S))[plan.name]
        if isinstance(outcome, KafkaException) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise outcome

    async def _check(self, admin: Admin, found: TopicDescription) -> None:
        name = self._plan.name
        if len(found.partitions) != 1:
            raise _unfit(f"topic {name!r} has {len(found.partitions)} partitions, it must have 1")
        replicas = len(found.partitions[0].replicas)
        if replicas < self._plan.replication_factor:
            self._log.warning(
                "topic %s has replication factor %d, below the wanted %d: a failed disk may lose its records",
                name,
                replicas,
                self._plan.replication_factor,
            )
        await self._check_policy(admin)

    async def _check_policy(self, admin: Admin) -> None:
        name = self._plan.name
        resource = ConfigResource(ResourceType.TOPIC, name)
        configs = (await admin.describe_configs([resource], _REQUEST_S))[resource]
        if isinstance(configs, KafkaException):
            if configs.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise configs
            self._log.warning("topic %s: its configs may not be read, so %s is not checked", name, _POLICY)
            return
        policy = configs[_POLICY].value
        if policy != _COMPACT:
            raise _unfit(
                f"topic {name!r} has {_POLICY}={policy}, it must be {_COMPACT}: other policies delete records"
            )


def _unfit(reason: str) -> UnfitTopic:
    return UnfitTopic(error_of(KafkaError._INVALID_ARG, reason))


def not_ready(plan: TopicPlan, limit_s: float, reason: KafkaException | None) -> KafkaException:
    """The error of a start whose topic was not ready in time, with the reason of the last attempt."""
    return failure(
        KafkaError._TIMED_OUT,
        f"topic {plan.name!r} is not ready in {limit_s:g} s: {_why(reason)}",
        retriable=True,
    )


def _why(reason: KafkaException | None) -> str:
    return "no broker answered" if reason is None else reason.error.str()

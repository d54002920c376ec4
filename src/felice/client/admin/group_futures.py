"""The calls of `AdminClient` about consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from felice.client.admin.arguments import check_group_offsets, distinct
from felice.client.admin.enumerations import ConsumerGroupState, ConsumerGroupType
from felice.client.admin.futures import FutureCalls
from felice.client.admin.model import (
    ConsumerGroupDescription,
    ConsumerGroupTopicPartitions,
    GroupMetadata,
    ListConsumerGroupsResult,
)
from felice.client.admin.retries import DEFAULT_TIMEOUT_S
from felice.client.arguments import takes_lists
from felice.client.error import KafkaException
from felice.client.group.requests import CommittedOffset


@takes_lists
class GroupFutures(FutureCalls):
    """Consumer groups, as futures."""

    def list_consumer_groups(
        self,
        *,
        states: Iterable[ConsumerGroupState] = (),
        types: Iterable[ConsumerGroupType] = (),
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Future[ListConsumerGroupsResult]:
        """List the groups of all brokers: a future of `ListConsumerGroupsResult`."""
        return self._one(self._admin.list_consumer_groups(states, types, request_timeout))

    def list_groups(
        self, group: str | None = None, timeout: float = DEFAULT_TIMEOUT_S
    ) -> list[GroupMetadata]:
        """Return groups with their members (with `group`, only that one, if it exists). Blocks; -1 is the usual limit.

        `list_consumer_groups` and `describe_consumer_groups` return decoded values and send fewer requests.
        """
        limit_s = timeout if timeout >= 0 else DEFAULT_TIMEOUT_S
        return self._one(self._admin.list_groups(group, limit_s)).result()

    def describe_consumer_groups(
        self,
        group_ids: list[str],
        *,
        include_authorized_operations: bool = False,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupDescription]]:
        """Describe groups: futures of `ConsumerGroupDescription`; a group that does not exist has the state Dead."""
        return {
            group: self._one(
                self._admin.describe_consumer_group(group, request_timeout, include_authorized_operations)
            )
            for group in distinct(group_ids, "group")
        }

    def delete_consumer_groups(
        self, group_ids: list[str], *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, Future[None]]:
        """Delete groups without members, and their offsets."""
        return {
            group: self._one(self._admin.delete_consumer_group(group, request_timeout))
            for group in distinct(group_ids, "group")
        }

    def list_consumer_group_offsets(
        self,
        list_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        require_stable: bool = False,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Return committed offsets: futures of `ConsumerGroupTopicPartitions` by group id."""
        check_group_offsets(list_consumer_group_offsets_request, needs_partitions=False, needs_offsets=False)

        async def ask(request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            rows = request.topic_partitions
            offsets = await self._admin.list_consumer_group_offsets(
                request.group_id,
                None if rows is None else [tp.key for tp in rows],
                request_timeout,
                require_stable,
            )
            return ConsumerGroupTopicPartitions(request.group_id, offsets)

        return {request.group_id: self._one(ask(request)) for request in list_consumer_group_offsets_request}

    def alter_consumer_group_offsets(
        self,
        alter_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Commit offsets for groups: futures of `ConsumerGroupTopicPartitions`, with an error per partition or None."""
        check_group_offsets(alter_consumer_group_offsets_request, needs_partitions=True, needs_offsets=True)

        async def ask(request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            offsets = {
                tp.key: CommittedOffset(
                    tp.offset, tp.metadata or "", -1 if tp.leader_epoch is None else tp.leader_epoch
                )
                for tp in request.topic_partitions or []
            }
            rows = await self._admin.alter_consumer_group_offsets(request.group_id, offsets, request_timeout)
            return ConsumerGroupTopicPartitions(request.group_id, rows)

        return {request.group_id: self._one(ask(request)) for request in alter_consumer_group_offsets_request}

    def delete_consumer_group_offsets(
        self,
        delete_consumer_group_offsets_request: list[ConsumerGroupTopicPartitions],
        *,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Delete committed offsets: futures of `ConsumerGroupTopicPartitions` by group id."""

        async def ask(request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            keys = [tp.key for tp in request.topic_partitions or []]
            rows = await self._admin.delete_consumer_group_offsets(request.group_id, keys, request_timeout)
            return ConsumerGroupTopicPartitions(request.group_id, rows)

        return {
            request.group_id: self._one(ask(request)) for request in delete_consumer_group_offsets_request
        }

    def remove_consumer_group_members(
        self,
        group_id: str,
        members: Iterable[tuple[str, str | None]],
        *,
        request_timeout: float = DEFAULT_TIMEOUT_S,
    ) -> Future[dict[tuple[str, str | None], KafkaException | None]]:
        """Remove members: a future of {(member id, instance id): None or error}; ("", instance id) if static."""
        return self._one(self._admin.remove_members(group_id, members, request_timeout))

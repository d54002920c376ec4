"""Consumer groups as coroutines: `GroupCalls`, a part of `Admin`. `groups` builds and reads the messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.client.admin import groups
from felice.client.admin.enumerations import ConsumerGroupState, ConsumerGroupType
from felice.client.admin.model import ConsumerGroupDescription, GroupMetadata, ListConsumerGroupsResult
from felice.client.admin.results import Results
from felice.client.admin.retries import DEFAULT_TIMEOUT_S, RetryingCalls
from felice.client.arguments import takes_lists
from felice.client.error import KafkaError, KafkaException
from felice.client.group.requests import CommittedOffset
from felice.client.model import Partition, TopicPartition
from felice.client.net.limits import limited


@takes_lists
class GroupCalls(RetryingCalls):
    """The part of `Admin` that lists, describes and changes consumer groups."""

    async def list_consumer_groups(
        self,
        states: Iterable[ConsumerGroupState] = (),
        types: Iterable[ConsumerGroupType] = (),
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> ListConsumerGroupsResult:
        """Return the groups of all brokers, filtered by state and type; an empty filter selects all.

        Like librdkafka's, the result has an error if no broker answered in time.
        """
        wanted = list(states), list(types)
        try:
            return await self._ask(timeout_s, groups.list_groups, *wanted)
        except KafkaException as error:
            if error.code != KafkaError._TIMED_OUT:
                raise
            return ListConsumerGroupsResult(errors=[error])

    async def describe_consumer_group(
        self,
        group_id: str,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        include_authorized_operations: bool = False,
    ) -> ConsumerGroupDescription:
        """Return a group with its members; a group that does not exist has the state Dead."""
        return await self._ask(
            timeout_s, groups.describe_group, group_id, timeout_s, include_authorized_operations
        )

    async def list_groups(
        self, group_id: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[GroupMetadata]:
        """Return groups of every kind, by name, with their members' undecoded bytes; only `group_id` if it is given.

        Raises `KafkaException` if a broker cannot list its groups, as librdkafka does. `list_consumer_groups` returns
        the groups of the other brokers, and the error.
        """
        async with limited(timeout_s):
            listed = await self._retrying(self._list_all, timeout_s)
            names = sorted(row.group_id for row in listed.valid if group_id in (None, row.group_id))
            return [await self._group_metadata(name, timeout_s) for name in names]

    async def _list_all(self) -> ListConsumerGroupsResult:
        listed = await groups.list_groups(self.cluster, (), ())
        if listed.errors:
            raise listed.errors[0]
        return listed

    async def _group_metadata(self, group_id: str, timeout_s: float) -> GroupMetadata:
        return await self._ask(timeout_s, groups.group_metadata, group_id, timeout_s)

    async def delete_consumer_group(self, group_id: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Delete a group without members, and its offsets."""
        await self._ask(timeout_s, groups.delete_group, group_id, timeout_s)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[tuple[str, str | None]],
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Results:
        """Remove members, named by (member id, instance id). Returns None or the error by member."""
        rows = list(members)
        return await self._ask(timeout_s, groups.remove_members, group_id, rows, timeout_s)

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[Partition] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        require_stable: bool = False,
    ) -> list[TopicPartition]:
        """Return committed offsets; None asks for all that the group has committed."""
        wanted = None if partitions is None else list(partitions)
        return await self._ask(
            timeout_s, groups.list_group_offsets, group_id, wanted, timeout_s, require_stable
        )

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[Partition, CommittedOffset],
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> list[TopicPartition]:
        """Commit offsets for a group without members. Returns the partitions, with errors per partition."""
        return await self._ask(timeout_s, groups.alter_group_offsets, group_id, offsets, timeout_s)

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Iterable[Partition], timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[TopicPartition]:
        """Delete committed offsets. Returns the partitions, with errors per partition."""
        wanted = list(partitions)
        return await self._ask(timeout_s, groups.delete_group_offsets, group_id, wanted, timeout_s)

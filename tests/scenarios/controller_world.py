"""The metadata of a cluster for scenarios: what happens to brokers, and what the controller decides.

The store is in memory, and nothing runs by itself. `look` runs the controller once: it prints what it decides on the
current image, and which of its writes succeeded. Commands:

    brokers 1 2@a 3@b           these brokers are alive (@ names a rack)
    topic NAME P=1,2,3 ...      a topic with these replicas, as a client creates it; `unclean` allows such elections
    dies N | returns N          a broker loses its registration, or registers
    restarts N                  the broker resigns what its previous incarnation led
    stops N                     a controlled shutdown: leaderships move, then the registration ends
    isr NAME-P 1,2              the leader writes the in-sync set
    elected                     another controller takes over, with the next epoch
    look [stale]                run the controller on the image, or on the one before the last command
    zombie                      run the previous controller, with its old epoch
    balance PERCENTAGE          move leaderships back to the preferred replicas
    reassign NAME-P 2,3 [same-factor] | cancel NAME-P
    prefer NAME-P | force NAME-P    ElectLeaders of either type
    show [NAME]                 every partition
    handmade NAME P=1,2         a topic's node alone, as an operator may write it
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from felice.controller.duties import Decision, StateChange, due, rebalanced, state_change
from felice.controller.election import fence_previous_incarnation, first_state, step_down
from felice.controller.leaderships import Leaderships
from felice.controller.writing import EpochPassed, write_decisions
from felice.metadata import Create, PartitionImage, SetData, layout
from felice.metadata.image import ClusterImage
from felice.metadata.layout import BrokerNode, Endpoint, StateNode, TopicNode
from felice.metadata.memory import MemoryEnsemble
from felice.metadata.store import Operation
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError


class ControllerWorld:
    def __init__(self) -> None:
        self._ensemble = MemoryEnsemble()
        self._store = self._ensemble.connect()
        self._watcher = Watcher(self._store, lambda old, new: None)
        self._before = ClusterImage()
        self._epoch, self._epoch_version = 1, 0
        self._zombie = (0, -1)
        self._unclean: set[str] = set()
        self._topics = 0
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._begin())

    def close(self) -> None:
        self._loop.run_until_complete(self._watcher.stop())
        self._loop.close()

    async def _begin(self) -> None:
        paths: list[Operation] = [Create(path) for path in layout.PERSISTENT_PATHS]
        await self._store.multi([*paths, Create(layout.CONTROLLER_EPOCH, b"1")])
        await self._watcher.start()

    def execute(self, line: str) -> list[str]:
        image = self._watcher.image
        command, *words = line.split()
        traced = self._loop.run_until_complete(self._carry_out(command, words))
        if command not in ("look", "show"):
            self._before = image
        return traced

    async def _carry_out(self, command: str, words: list[str]) -> list[str]:
        method = getattr(self, f"_do_{command}")
        traced: list[str] | None = await method(*words)
        await self._settle()
        return traced or []

    async def _settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    # Events

    async def _do_brokers(self, *words: str) -> None:
        for word in words:
            await self._do_returns(word)

    async def _do_returns(self, word: str) -> None:
        broker, _, rack = word.partition("@")
        node = BrokerNode((Endpoint("PLAINTEXT", "h", 9092),), {"PLAINTEXT": "PLAINTEXT"}, rack or None, 0)
        await self._store.create(layout.broker_path(int(broker)), layout.encode_broker(node))

    async def _do_dies(self, broker: str) -> None:
        await self._store.delete(layout.broker_path(int(broker)))

    async def _do_restarts(self, broker: str) -> list[str]:
        return await self._leave(int(broker), is_restart=True)

    async def _do_stops(self, broker: str) -> list[str]:
        traced = await self._leave(int(broker), is_restart=False)
        await self._do_dies(broker)
        return traced

    async def _leave(self, broker: int, *, is_restart: bool) -> list[str]:
        image = self._watcher.image
        others = {other for other in image.brokers if other != broker}
        step = fence_previous_incarnation if is_restart else step_down
        decisions: list[Decision] = []
        for topic in image.topics.values():
            for partition in topic.partitions:
                state = step(partition, broker, others, image.controller_epoch)
                if state is not None:
                    decisions.append(state_change(topic, partition, state))
        return await self._write(decisions, self._epoch_version)

    async def _do_topic(self, name: str, *words: str) -> None:
        partitions = self._assignment(words)
        if "unclean" in words:
            self._unclean.add(name)
        await self._do_handmade(name, *(word for word in words if word != "unclean"))
        operations: list[Operation] = [Create(layout.partitions_path(name))]
        for index, replicas in partitions.items():
            state = first_state(replicas, self._watcher.image.brokers, self._epoch)
            operations.append(Create(layout.partition_path(name, index)))
            operations.append(Create(layout.state_path(name, index), layout.encode_state(state)))
        await self._store.multi(operations)

    async def _do_handmade(self, name: str, *words: str) -> None:
        self._topics += 1
        node = TopicNode(UUID(int=self._topics), self._assignment(words), {}, {})
        await self._store.create(layout.topic_path(name), layout.encode_topic(node))

    async def _do_isr(self, where: str, isr: str) -> None:
        topic, index = _where(where)
        partition = self._watcher.image.partition(topic, index)
        assert partition is not None
        state = StateNode(partition.leader, partition.leader_epoch, self._epoch, _ids(isr))
        path = layout.state_path(topic, index)
        await self._store.multi([SetData(path, layout.encode_state(state), partition.partition_epoch)])

    # The controller

    async def _do_elected(self) -> None:
        self._zombie = (self._epoch, self._epoch_version)
        self._epoch += 1
        self._epoch_version = await self._store.set(layout.CONTROLLER_EPOCH, b"%d" % self._epoch)

    async def _do_look(self, when: str = "now") -> list[str]:
        image = self._before if when == "stale" else self._watcher.image
        return await self._write(due(image, self._epoch, self._unclean.__contains__), self._epoch_version)

    async def _do_zombie(self) -> list[str]:
        epoch, version = self._zombie
        return await self._write(due(self._watcher.image, epoch, self._unclean.__contains__), version)

    async def _do_balance(self, percentage: str) -> list[str]:
        decisions = rebalanced(self._watcher.image, self._epoch, int(percentage))
        return await self._write(decisions, self._epoch_version)

    async def _write(self, decisions: list[Decision], epoch_version: int) -> list[str]:
        try:
            lost = await write_decisions(self._store, epoch_version, decisions)
        except EpochPassed:
            return [*(_decided(one) for one in decisions), "refused: another controller has taken over"]
        traced = [_decided(one) + (" - lost a race" if one in lost else "") for one in decisions]
        return traced or ["nothing to do"]

    # Clients

    async def _do_reassign(self, where: str, replicas: str, rule: str = "") -> list[str]:
        return await self._reassign(where, list(_ids(replicas)), may_change_factor=rule != "same-factor")

    async def _do_cancel(self, where: str) -> list[str]:
        return await self._reassign(where, None)

    async def _reassign(
        self, where: str, replicas: list[int] | None, *, may_change_factor: bool = True
    ) -> list[str]:
        topic, index = _where(where)
        asked = Leaderships(self._store, self._watcher).reassign(
            topic, {index: replicas}, may_change_factor=may_change_factor
        )
        found = await asked
        return [_outcome(found[index]), *await self._do_show(topic)]

    async def _do_prefer(self, where: str) -> list[str]:
        return await self._elect(where, is_unclean=False)

    async def _do_force(self, where: str) -> list[str]:
        return await self._elect(where, is_unclean=True)

    async def _elect(self, where: str, *, is_unclean: bool) -> list[str]:
        asked = _where(where)
        found = await Leaderships(self._store, self._watcher).elect([asked], is_unclean=is_unclean)
        return [_outcome(found[asked]), *await self._do_show(asked[0])]

    async def _do_show(self, name: str | None = None) -> list[str]:
        await self._settle()
        return [
            f"{topic.name}-{partition.partition} {_described(partition)}"
            for topic in self._watcher.image.topics.values()
            if name in (None, topic.name)
            for partition in topic.partitions
        ]

    @staticmethod
    def _assignment(words: tuple[str, ...]) -> dict[int, tuple[int, ...]]:
        pairs = (word.split("=") for word in words if "=" in word)
        return {int(index): _ids(replicas) for index, replicas in pairs}


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def _listed(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


def _where(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _outcome(failure: ApiError | None) -> str:
    return "ok" if failure is None else f"{failure}"


def _decided(decision: Decision) -> str:
    if isinstance(decision, StateChange):
        state = decision.state
        return (
            f"{decision.topic}-{decision.partition} leader {state.leader} epoch {state.leader_epoch} "
            f"isr {_listed(state.isr)}"
        )
    rows = ", ".join(f"{index}={_listed(replicas)}" for index, replicas in decision.node.partitions.items())
    return "; ".join([f"{decision.topic} assigned {rows}", *map(_decided, decision.states)])


def _described(partition: PartitionImage) -> str:
    words = f"replicas {_listed(partition.replicas)} leader {partition.leader} epoch {partition.leader_epoch}"
    words += f" isr {_listed(partition.isr)}"
    words += f" adding {_listed(partition.adding)}" if partition.adding else ""
    return words + (f" removing {_listed(partition.removing)}" if partition.removing else "")

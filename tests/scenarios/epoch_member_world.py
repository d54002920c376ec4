"""A member of our client in a KIP-848 group, and a coordinator whose answers the scenario writes.

    member instance=i rack=r assignor=a   a new member, in place of the one before
    subscribe t,u ^x.*                    the application subscribes
    names t,u                             the topics whose names the client knows (t, u and v from the start)
    beat | beat v0                        the request that the member sends next, in version 1 or 0
    answer 5 t[0,1] u[0]                  an answer with this epoch and assignment; `answer 5` has no assignment,
                                          and `answer 5 nothing` an empty one
    error NOT_COORDINATOR                 an answer with an error
    silence                               no answer
    begin                                 the consumer begins what the member has to do
    done                                  the consumer has carried out what it began, or what the member has to do
    idle                                  the application has stopped polling
    leave                                 the request with which the member leaves

The trace is what the member says of the answer, its state, and what it has to do with its partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import NAMESPACE_DNS, UUID, uuid5

from felice.client.error import KafkaException
from felice.client.group.epoch_member import Duty, EpochMember, EpochSettings, Held, Topics
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_LAST_VERSION = 1


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE_DNS, name)


# `t2` is a topic named t that was created again.
IDS = {topic_id(name): name.rstrip("2") for name in ("t", "t2", "u", "v")}
SHOWN = {topic_id(name): name for name in ("t", "t2", "u", "v")}


class EpochMemberWorld:
    def __init__(self) -> None:
        self._member()
        self.names = dict(IDS)
        self.begun: Duty | None = None

    def _member(self, **settings: str) -> None:
        keys = {
            {"instance": "instance_id", "rack": "rack_id"}.get(key, key): settings[key] for key in settings
        }
        self.member = EpochMember(EpochSettings("g", 5000, **keys), "me")

    def execute(self, line: str) -> list[str]:
        command, *words = line.split()
        match command:
            case "member":
                self._member(**dict(word.split("=", 1) for word in words))
            case "subscribe":
                names = frozenset(name for word in words if word[0] != "^" for name in word.split(","))
                expression = next((word for word in words if word[0] == "^"), None)
                self.member.topics = Topics(names, expression)
            case "names":
                self.names = {key: name for key, name in IDS.items() if SHOWN[key] in words[0].split(",")}
            case "beat":
                assert self.member.may_send
                return [self._beat(0 if words else _LAST_VERSION)]
            case "leave":
                return [self._show(self.member.leave().build(_LAST_VERSION))]
            case "answer":
                return [self._answer(int(words[0]), words[1:]), *self._state()]
            case "error":
                response = ConsumerGroupHeartbeatResponse(error_code=ErrorCode[words[0]])
                return [self.member.on_answer(response).name, *self._state()]
            case "silence":
                self.member.on_no_answer()
            case "begin":
                self.begun = self._duty()
                assert self.begun is not None
            case "done":
                duty, self.begun = self.begun or self._duty(), None
                assert duty is not None
                self.member.on_done(duty)
            case "idle":
                self.member.lose()
            case _:
                raise AssertionError(f"no such command: {line}")
        return self._state()

    def _beat(self, version: int) -> str:
        try:
            return self._show(self.member.heartbeat().build(version))
        except KafkaException as error:
            return error.error.str()

    def _answer(self, epoch: int, words: list[str]) -> str:
        response = ConsumerGroupHeartbeatResponse(
            member_id="me", member_epoch=epoch, heartbeat_interval_ms=5000
        )
        if words:
            rows = [re.fullmatch(r"(\w+)\[([\d,]+)\]", word) for word in words if word != "nothing"]
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id(row[1]), partitions=[int(n) for n in row[2].split(",")])
                    for row in rows
                    if row is not None
                ]
            )
        return self.member.on_answer(response).name

    def _duty(self) -> Duty | None:
        return self.member.duty(self.names)

    def _state(self) -> list[str]:
        member, duty = self.member, self._duty()
        state = f"{member.phase.name} epoch={member.epoch} owns {_partitions(member.owned)}"
        state += " due" * member.is_due + " stable" * member.stable + " expelled" * member.expelled
        lines = [state]
        if duty is not None:
            lines.append(f"to do: {duty.action.name} {_partitions(duty.partitions)}")
        if unnamed := member.unnamed(self.names):
            lines.append(f"unnamed: {','.join(sorted(SHOWN[key] for key in unnamed))}")
        return lines

    def _show(self, request: object) -> str:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        fields = [f"{request.member_id} epoch={request.member_epoch}"]
        owned = request.topic_partitions
        for name, value in (
            ("instance", request.instance_id),
            ("rack", request.rack_id),
            ("timeout", None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms),
            ("assignor", request.server_assignor),
            ("names", None if (names := request.subscribed_topic_names) is None else ",".join(names)),
            ("regex", request.subscribed_topic_regex),
            (
                "owned",
                None if owned is None else _partitions((r.topic_id, n) for r in owned for n in r.partitions),
            ),
        ):
            fields += [] if value is None else [f"{name}={value}"]
        return " ".join(fields)


def _partitions(held: Iterable[Held]) -> str:
    numbers: dict[str, list[int]] = {}
    for key, number in sorted(held, key=lambda row: (SHOWN[row[0]], row[1])):
        numbers.setdefault(SHOWN[key], []).append(number)
    return ",".join(f"{name}{found}".replace(" ", "") for name, found in numbers.items()) or "nothing"

"""What the scenarios of all coordinators share: a shard with its log and clock, waiting requests, and pending writes.

    advance MS    reload          hold | release | refuse ERROR | lose ERROR   (the outcome of later writes)

`lose` leaves the records in the log but reports a failure: a write that timed out.
`failover` moves the coordinator to another broker, whose log has the pending writes (`kept`) or lacks them.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from felice.coordinator.shard import AfterWrite, BeginWork, Instant, Outcome, Undo, Work
from felice.protocol.errors import ErrorCode

R = TypeVar("R")


@dataclass(slots=True)
class Waiter:
    world: CoordinatorWorld[Any]
    name: str
    answers: int = 0

    def answer(self, response: Any) -> None:
        self.answers += 1
        assert self.answers == 1, f"{self.name} was answered twice"
        self.world.on_answer(self.name, response)


@dataclass(slots=True)
class PendingWrite(Generic[R]):
    records: list[R]
    undo: list[Undo]
    after: list[AfterWrite[R]]


@dataclass
class CoordinatorWorld(ABC, Generic[R]):
    settings: Any
    codec: Any = field(init=False)
    shard: Any = field(init=False)
    now_ms: int = 0
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    writes: str = "commit"
    held: list[PendingWrite[R]] = field(default_factory=list)
    # Computations that were begun and have not run.
    work: list[Work[R]] = field(default_factory=list)

    @abstractmethod
    def new_shard(self) -> Any: ...

    @abstractmethod
    def describe_record(self, record: R) -> str: ...

    @abstractmethod
    def on_answer(self, name: str, response: Any) -> None: ...

    def is_option(self, word: str) -> bool:
        return "=" in word

    def start(self) -> None:
        self.shard = self.new_shard()
        for key, value in self.log:
            record = self.codec.decode(key, value)
            assert record is not None
            self.shard.replay(record)
        self.carry_out(self.shard.on_loaded(self.now))

    @property
    def now(self) -> Instant:
        return Instant(1_000_000 + self.now_ms, self.now_ms)

    def execute(self, line: str) -> list[str]:
        self.trace = []
        command, *words = shlex.split(line)
        names = [word for word in words if not self.is_option(word)]
        options = dict(word.split("=", 1) for word in words if self.is_option(word))
        getattr(self, "do_" + command.replace("-", "_"))(names, options)
        return self.trace

    def say(self, text: str) -> None:
        self.trace.append(f"@{self.now_ms} {text}")

    def waiter(self, name: str) -> Waiter:
        self.waiters.append(Waiter(self, name))
        return self.waiters[-1]

    # What the shell does

    def carry_out(self, outcome: Outcome[R]) -> None:
        for reply in outcome.replies:
            reply.waiter.answer(reply.response)
        if not outcome.records and not outcome.after_write:
            self.work += outcome.work
            return
        undo = [self.shard.replay(record) for record in outcome.records]
        write = PendingWrite(outcome.records, undo, [*outcome.after_write, *map(BeginWork, outcome.work)])
        if self.writes == "hold":
            self.held.append(write)
        elif self.writes == "commit":
            self.commit(write)
        else:
            self.fail(write, *self.writes.split())

    def commit(self, write: PendingWrite[R]) -> None:
        self.store(write)
        for after in write.after:
            self.carry_out(after.on_committed(self.now))

    def store(self, write: PendingWrite[R]) -> None:
        for record in write.records:
            self.log.append(self.codec.encode(record))
            self.say(f"log: {self.describe_record(record)}")

    def fail(self, write: PendingWrite[R], how: str, error: str) -> None:
        self.writes = "commit"
        if how == "lose":
            self.store(write)
        else:
            for undo in reversed(write.undo):
                undo()
        for after in write.after:
            self.carry_out(after.on_failed(ErrorCode[error], self.now))

    # Commands

    def do_settings(self, names: list[str], options: dict[str, str]) -> None:
        self.settings = type(self.settings)(**{name: int(value) for name, value in options.items()})
        self.start()

    def do_advance(self, names: list[str], options: dict[str, str]) -> None:
        until_ms = self.now_ms + int(names[0])
        while (deadline_ms := self.shard.next_deadline_ms()) <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.carry_out(self.shard.on_time(self.now))
        self.now_ms = until_ms

    def do_failover(self, names: list[str], options: dict[str, str]) -> None:
        held, self.held, self.writes = self.held, [], "commit"
        for write in held:
            if "kept" in names:
                self.store(write)
            for after in write.after:
                for reply in after.on_failed(ErrorCode.NOT_COORDINATOR, self.now).replies:
                    reply.waiter.answer(reply.response)
        self.do_reload([], {})

    @abstractmethod
    def do_reload(self, names: list[str], options: dict[str, str]) -> None: ...

    def do_hold(self, names: list[str], options: dict[str, str]) -> None:
        self.writes = "hold"

    def do_release(self, names: list[str], options: dict[str, str]) -> None:
        self.writes, held, self.held = "commit", self.held, []
        for write in held:
            self.commit(write)

    def do_refuse(self, names: list[str], options: dict[str, str]) -> None:
        held, self.held = self.held, []
        if not held:
            self.writes = f"refuse {names[0]}"
        for write in reversed(held):
            self.fail(write, "refuse", names[0])

    def do_lose(self, names: list[str], options: dict[str, str]) -> None:
        self.writes = f"lose {names[0]}"

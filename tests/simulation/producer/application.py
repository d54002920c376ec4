"""An application with several threads that share one blocking producer, on virtual time.

The producer's code is the one that is shipped; only its event loop is the simulated one. A thread switch can happen at
the calls in `SWITCHES` and whenever the producer asks for the time or the partition. There, another thread of the
application goes on. While the producer's lock is held, it gets as far as it can without that lock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from checkers.history import Called, Reported
from felice.client.confluent.producer import Producer
from felice.client.error import KafkaError, KafkaException
from felice.client.model import Message
from felice.client.options import ProducerSettings
from felice.client.produce import sender
from felice.client.produce.accumulator import Accumulator
from felice.client.produce.batches import ProducerBatch
from felice.client.produce.core import ProducerCore, make_accumulator
from felice.client.produce.serving import FirstError, ServedInbox
from felice.client.produce.turns import Turns
from felice.env import Environment
from felice.records import builder
from felice.testing.simulation.process import CURRENT
from simulation.observations import PLAIN
from simulation.workload import SharedState, WorkloadClient

GHOST = "ghost"
"""A topic that is never created."""

SWITCHES: tuple[tuple[Any, str], ...] = (
    (Accumulator, "_append_to"),
    (Accumulator, "_begin"),
    (Accumulator, "_close"),
    (Accumulator, "_end_holding"),
    (ProducerBatch, "add_report"),
)
_SWITCH_PROBABILITY = 0.4
_PATIENCE_S = 60.0


class Injected(Exception):
    """Raised by what the application, a codec or an encoder does wrong on purpose."""


class _LoopThread:
    """Stands for the thread of the producer's event loop."""

    alive = True
    is_left_behind = False

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        asyncio.get_running_loop().call_soon(function, *arguments)


class SimulatedProducer(Producer):
    """The blocking producer without a thread of its own. Its calls must not wait."""

    def __init__(self, config: dict[str, object], env: Environment, clock: Callable[[], float]) -> None:
        settings = ProducerSettings.parse(config, env)
        self._settings = settings
        self._accumulator = make_accumulator(settings, clock)
        self._offer = self._accumulator.offers.offer
        self._turns = Turns(clock, lambda _: None)
        self._inbox = ServedInbox(self._accumulator, settings.delivery_report_only_error)
        self._default_report = None
        self._thread = _LoopThread()  # type: ignore[assignment]
        self._core = ProducerCore(settings, self._accumulator, self._inbox)
        self._wake = self._core.sender.wake

    def __del__(self) -> None:
        """Do nothing: no thread is to be stopped."""

    @property
    def is_locked(self) -> bool:
        """True while a thread holds the accumulator's lock."""
        return self._accumulator.lock.locked()

    def purge_now(self, *, in_flight: bool) -> None:
        """Drop the waiting records."""
        self._core.sender.purge(in_queue=True, in_flight=in_flight)

    async def end(self, patience_s: float) -> None:
        """Flush for at most this time, then close, as `close` does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        self._accumulator.flushing += 1
        self._core.sender.wake()
        while self._accumulator.record_count and loop.time() < deadline:
            self.serve()
            await asyncio.sleep(0.01)
        await self._core.close()
        self.serve()

    def serve(self) -> int:
        """Serve all reports."""
        served = 0
        with contextlib.suppress(Injected), FirstError() as errors:
            served = self._serve(errors)
        return served


@dataclass(slots=True)
class ApplicationThread:
    """A thread that produces numbered records. A step is one call of `produce`, or as much of it as is possible."""

    app: ProducingApplication
    name: str
    random: Random
    left: int
    number: int = -1
    is_busy: bool = False
    blocked: Callable[[], None] | None = field(default=None, repr=False)

    @property
    def is_done(self) -> bool:
        """True if all calls were made and have returned."""
        return not self.left and self.blocked is None

    def step(self) -> None:
        """Go on, unless the thread is inside a call or waits for the lock."""
        if self.is_busy or self.is_done:
            return
        self.is_busy = True
        try:
            if self.blocked is None:
                self.left -= 1
                self.number += 1
                self._call()
            elif not self.app.producer.is_locked:
                rest, self.blocked = self.blocked, None
                rest()
        finally:
            self.is_busy = False

    def _call(self) -> None:
        number, random = self.number, self.random
        partition = random.choice((-1, *self.app.shared.partitions, *self.app.shared.partitions))
        keys: dict[str, Any] = {
            "topic": GHOST if random.random() < self.app.ghost_probability else PLAIN,
            "value": f"{self.name}:{number}:".encode().ljust(random.choice((0, 0, 60))),
            "partition": partition,
            "timestamp": 1_700_000_000_000 + number,
            "on_delivery": self.app.report_of(self.name, number),
            "key": random.choice((None, b"k1", b"k2")) if partition < 0 else None,
            "headers": [("h", b"1")] if random.random() < 0.15 else None,
        }

        def produce() -> None:
            try:
                self.app.producer.produce(**keys)
            except (BufferError, KafkaException, Injected):
                self._note(number, is_accepted=False)
            else:
                self._note(number, is_accepted=True)

        if not self.app.producer.is_locked:
            produce()
            return
        outcome = 0
        if keys["headers"] is None and keys["key"] is None:
            outcome = self.app.producer._offer(
                keys["topic"], partition, keys["timestamp"], None, keys["value"], keys["on_delivery"]
            )
        if not outcome:
            self.blocked = produce
            return
        self._note(number, is_accepted=True)
        if outcome == 2:
            self.blocked = lambda: self.app.close_full(keys["topic"])

    def _note(self, number: int, *, is_accepted: bool) -> None:
        self.app.observations.called.append(Called(self.name, number, is_accepted))


class ProducingApplication(WorkloadClient):
    """The application: its threads, a thread that serves reports, and the end."""

    producer: SimulatedProducer

    def __init__(self, shared: SharedState, name: str) -> None:
        super().__init__(shared, name)
        self.ghost_probability = self.random.choice((0.0, 0.0, 0.1))
        self._raising_probability = self.random.choice((0.0, 0.1, 0.5))
        self._failing_probability = self.random.choice((0.0, 0.0, 0.03, 0.2))
        self._threads = [
            ApplicationThread(self, f"{name}.{number}", self.random, self.random.randrange(10, 120))
            for number in range(self.random.randrange(1, 4))
        ]
        self._is_switching = False

    async def run(self, env: Environment, incarnation: int) -> None:
        """Produce everything, serve reports meanwhile, then close."""
        with self._injections():
            self.producer = SimulatedProducer(self._config(), env, self._clock)
            driving = [asyncio.ensure_future(self._drive(thread)) for thread in self._threads]
            while not all(task.done() for task in driving):
                self.producer.serve()
                if self.random.random() < 0.01:
                    self.producer.purge_now(in_flight=self.random.random() < 0.5)
                await asyncio.sleep(self.random.choice((0.0, 0.005, 0.05)))
            await asyncio.gather(*driving)
            patience_s = self.random.choice((_PATIENCE_S, _PATIENCE_S, 0.05))
            if patience_s == _PATIENCE_S:
                while not self.shared.is_finishing:
                    self.producer.serve()
                    await asyncio.sleep(0.02)
            began_s = self.shared.now_s
            await self.producer.end(patience_s)
            if len(self.producer):
                self.observations.reported.append(f"{len(self.producer)} records are left after the close")
            if self.shared.now_s - began_s >= _PATIENCE_S:
                self.observations.reported.append("liveness: flush did not end")

    def _config(self) -> dict[str, object]:
        choice = self.random.choice
        return {
            **self.shared.client,
            "linger.ms": choice((0, 5, 50)),
            "batch.num.messages": choice((1, 3, 20, 1000)),
            "queue.buffering.max.messages": choice((20, 1000, 100_000)),
            "compression.type": self.shared.plan.codec,
            "message.timeout.ms": choice((1_000, 20_000)),
            "topic.metadata.propagation.max.ms": choice((200, 20_000)),
            "partitioner": choice(("murmur2_random", self._partition, "round_robin")),
        }

    async def _drive(self, thread: ApplicationThread) -> None:
        while not thread.is_done:
            for _ in range(self.random.choice((1, 5, 30))):
                thread.step()
            await asyncio.sleep(self.random.choice((0.0, 0.001, 0.03)))

    def close_full(self, topic: str) -> None:
        """What remains of a call of `produce` that filled a batch."""
        self.producer._accumulator.close_full(topic)
        self.producer._wake_sender()

    def report_of(self, thread: str, number: int) -> Callable[[KafkaError | None, Message], None]:
        """The callback of one record. It may raise."""

        def report(error: KafkaError | None, message: Message) -> None:
            offset = message.offset() if error is None else None
            named = (message.value() or b"").startswith(f"{thread}:{number}:".encode())
            self.observations.reports.append(
                Reported(thread, number, message.partition() or 0, offset, is_its_own=named)
            )
            self._fail_with(self._raising_probability)

        return report

    # Switches and injected failures

    def _clock(self) -> float:
        self.switch()
        return self.shared.now_s

    def _partition(self, key: bytes | None, partitions: int) -> int:
        self.switch()
        self._fail_with(self._failing_probability / 2)
        return 0 if key is None else key[-1] % partitions

    def switch(self) -> None:
        """Let another thread go on, perhaps."""
        while self.random.random() < _SWITCH_PROBABILITY:
            self.random.choice(self._threads).step()

    def _fail_with(self, probability: float) -> None:
        if self.random.random() < probability:
            raise Injected

    @contextlib.contextmanager
    def _injections(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for owner, name in SWITCHES:
                stack.enter_context(patch.object(owner, name, self._switching(getattr(owner, name))))
            for owner, name in ((builder, "compress"), (builder.BatchBuilder, "append")):
                stack.enter_context(patch.object(owner, name, self._failing(getattr(owner, name))))
            stack.enter_context(patch.object(sender, "_HELD_AT_ONCE", self.random.choice((1, 7, 1000))))
            yield

    def _switching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*arguments: Any, **more: Any) -> Any:
            self.switch()
            result = original(*arguments, **more)
            self.switch()
            return result

        return stand_in

    def _failing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*arguments: Any, **more: Any) -> Any:
            # The broker uses the same code.
            if CURRENT.get() is self.machine.process:
                self._fail_with(self._failing_probability)
            return original(*arguments, **more)

        return stand_in

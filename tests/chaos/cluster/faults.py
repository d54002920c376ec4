"""The faults of a chaos run and their repair: one fault at a time, chosen from a seed."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.cluster.network import Namespaces
from chaos.cluster.processes import BrokerNode, Network, Node, ZooKeeperNode


@dataclass(frozen=True, slots=True)
class Targets:
    """The processes and the network that a fault may affect."""

    network: Network
    brokers: Sequence[BrokerNode]
    zookeepers: Sequence[ZooKeeperNode]


Fault = Callable[[Targets, random.Random], contextlib.AbstractContextManager[str]]
"""A context manager: entering it causes the fault and yields its description; leaving it repairs the fault."""


@contextlib.contextmanager
def killed_broker(targets: Targets, dice: random.Random) -> Iterator[str]:
    broker = dice.choice(targets.brokers)
    broker.kill()
    yield f"kill -9 of {broker.name}"
    broker.start_and_wait()


@contextlib.contextmanager
def paused_broker(targets: Targets, dice: random.Random) -> Iterator[str]:
    """Stop a broker, sometimes for long enough that its session ends without its knowledge."""
    broker = dice.choice(targets.brokers)
    broker.pause()
    yield f"SIGSTOP of {broker.name}"
    broker.resume()


@contextlib.contextmanager
def restarted_broker(targets: Targets, dice: random.Random) -> Iterator[str]:
    broker = dice.choice(targets.brokers)
    code = broker.terminate()
    assert code == 0, f"{broker.name} ended with {code}"
    broker.start_and_wait()
    yield f"clean restart of {broker.name}"


@contextlib.contextmanager
def killed_zookeeper_leader(targets: Targets, dice: random.Random) -> Iterator[str]:
    leader = next((node for node in targets.zookeepers if node.mode == "leader"), None)
    victim = leader or dice.choice(targets.zookeepers)
    victim.kill()
    yield f"kill -9 of ZooKeeper's {'leader' if leader else 'server'} {victim.name}"
    victim.start()


@contextlib.contextmanager
def isolated_broker(targets: Targets, dice: random.Random) -> Iterator[str]:
    """Cut a broker off from all other brokers, but not from ZooKeeper."""
    broker = dice.choice(targets.brokers)
    with _cut(
        targets.network, [broker], [other for other in targets.brokers if other is not broker], both=True
    ):
        yield f"{broker.name} cut off from the other brokers"


@contextlib.contextmanager
def deaf_link(targets: Targets, dice: random.Random) -> Iterator[str]:
    """Drop what one broker sends to another; the other direction works."""
    source, target = dice.sample(list(targets.brokers), 2)
    with _cut(targets.network, [source], [target], both=False):
        yield f"packets from {source.name} to {target.name} are lost"


@contextlib.contextmanager
def without_zookeeper(targets: Targets, dice: random.Random) -> Iterator[str]:
    broker = dice.choice(targets.brokers)
    with _cut(targets.network, [broker], targets.zookeepers, both=True):
        yield f"{broker.name} cut off from ZooKeeper"


@contextlib.contextmanager
def full_disk(targets: Targets, dice: random.Random) -> Iterator[str]:
    """Fill the small file system that holds only this broker's data."""
    broker = dice.choice(targets.brokers)
    ballast = broker.data / "ballast"
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={ballast}", "bs=1M", "status=none"], capture_output=True, check=False
    )
    yield f"full disk of {broker.name}"
    ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def _cut(network: Network, some: Sequence[Node], others: Sequence[Node], *, both: bool) -> Iterator[None]:
    assert isinstance(network, Namespaces)
    links = [(one.name, other.name) for one in some for other in others]
    if both:
        links += [(target, source) for source, target in links]
    for link in links:
        network.cut(*link)
    try:
        yield
    finally:
        for link in links:
            network.heal(*link)


def faults_for(network: Network, *, small_disks: bool) -> list[Fault]:
    """The faults that are possible on this machine."""
    found: list[Fault] = [
        killed_broker,
        killed_broker,
        paused_broker,
        restarted_broker,
        killed_zookeeper_leader,
    ]
    if network.can_cut:
        found += [isolated_broker, deaf_link, without_zookeeper]
    if small_disks:
        found.append(full_disk)
    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """Shortest and longest duration, in seconds, of a fault and of the pause after it."""

    fault_s: tuple[float, float] = (1.0, 15.0)
    rest_s: tuple[float, float] = (3.0, 10.0)


USUAL_PACE = Pace()


class Nemesis(threading.Thread):
    """Causes one fault after another, with pauses between, until it is stopped."""

    def __init__(
        self, targets: Targets, faults: Sequence[Fault], seed: int, pace: Pace, journal: Path
    ) -> None:
        super().__init__(name="nemesis")
        self.done: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._targets, self._faults = targets, faults
        self._dice = random.Random(seed)
        self._pace = pace
        self._journal = journal
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.wait(self._dice.uniform(*self._pace.rest_s)):
                fault = self._dice.choice(self._faults)
                with fault(self._targets, self._dice) as what:
                    self._note(what)
                    self._stopping.wait(self._dice.uniform(*self._pace.fault_s))
                self.done[fault.__name__] += 1
                self._note(f"over: {what}")
        except BaseException as error:
            self.failure = error

    def _note(self, what: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(f"{time.strftime('%H:%M:%S')} {what}\n")

    def stop(self) -> None:
        self._stopping.set()
        self.join(400)
        assert not self.is_alive(), "the fault under way did not end"

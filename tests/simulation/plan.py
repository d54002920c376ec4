"""The plan that a seed makes for one broker: how durable its log is, which clients run, and which faults happen when.

Three settings of durability (docs/invariants.md, "What is durable when"):
`synced`  flush.messages=1: acknowledged data survives everything, also a power failure.
`cached`  the defaults, without power failures: acknowledged data survives kill -9.
`lossy`   the defaults, with power failures: the end of a log may be lost, never a part before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

DURABILITIES = ("synced", "synced", "cached", "cached", "lossy")
CODECS = ("none", "none", "lz4", "zstd", "gzip", "snappy")
# Writers and readers always run. These run in addition.
WORKLOADS = ("transactions", "copier", "group", "admin", "keyed")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the environment:

    `time_s` after the workload starts. What `seconds` and `number` mean depends on `kind`.
    """

    time_s: float
    kind: str
    seconds: float = 0.0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that happens in a run, decided by the seed before the run starts."""

    seed: int
    durability: str
    partitions: int
    length_s: float
    codec: str
    workloads: tuple[str, ...]
    properties: dict[str, str]
    faults: tuple[Fault, ...]
    brokers: int = 1
    replicas: int = 1
    min_isr: int = 1
    deletes_records: bool = False

    def describe(self) -> str:
        """The plan as text for a person."""
        faults = "\n".join(f"  {f.time_s:.3f} s {f.kind} {f.seconds:.3f} {f.number}" for f in self.faults)
        return (
            f"seed {self.seed}: {self.durability}, {self.partitions} partitions, {self.workloads}\n{faults}"
        )


def plan_of(seed: int) -> Plan:
    """The plan for one broker."""
    random = Random(f"{seed}/plan")
    durability = random.choice(DURABILITIES)
    workloads = tuple(
        random.sample(
            WORKLOADS[:-2] if durability != "lossy" else ("admin",), 1 if durability == "lossy" else 2
        )
    )
    if durability != "lossy" and random.random() < 0.4:
        workloads = (*workloads[:1], random.choice(WORKLOADS[-2:]))
    length_s = random.uniform(1.0, 3.0)
    return Plan(
        seed,
        durability,
        partitions=random.randrange(1, 4),
        length_s=length_s,
        codec=random.choice(CODECS),
        workloads=workloads,
        properties=_properties(random, durability),
        faults=tuple(
            sorted(_faults(random, durability, workloads, length_s), key=lambda fault: fault.time_s)
        ),
    )


def _properties(random: Random, durability: str) -> dict[str, str]:
    interval_ms = str(random.choice((200, 500, 2000, 60_000)))
    properties = {
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "group.min.session.timeout.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
        # Small indexes make small segments: the log rolls often, and recovery reads several files.
        "log.index.interval.bytes": str(random.choice((1, 64, 512, 4096))),
        "log.index.size.max.bytes": str(random.choice((24, 64, 256, 10_485_760))),
        "log.flush.offset.checkpoint.interval.ms": interval_ms,
        "replica.high.watermark.checkpoint.interval.ms": interval_ms,
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.dedupe.buffer.size": "1048576",
        "log.cleaner.io.buffer.size": "4096",
        "log.cleaner.min.cleanable.ratio": "0.1",
        "log.segment.delete.delay.ms": "500",
        "log.retention.check.interval.ms": "300",
        "auto.create.topics.enable": "false",
    }
    if durability == "synced":
        properties["log.flush.interval.messages"] = "1"
    return properties


def _faults(random: Random, durability: str, workloads: tuple[str, ...], length_s: float) -> list[Fault]:
    kinds = [
        "kill",
        "kill",
        "restart",
        "cut",
        "cut",
        "cut",
        "slow",
        "part",
        "one way",
        "clock",
        "stop client",
    ]
    kinds += ["kill client", "disk error", "full disk"]
    if durability != "cached":
        kinds += ["power", "power", "power at operation"]
    if durability == "lossy":
        # A failed sync loses data for good, even if a later sync or a clean stop succeeds. The checker of
        # lossy runs knows only power failures.
        kinds = [name for name in kinds if name != "disk error"]
    faults = []
    for _ in range(random.randrange(2, 7)):
        name = random.choice(kinds)
        faults.append(
            Fault(
                random.uniform(0.1, length_s),
                name,
                seconds=random.choice((0.02, 0.2, 0.8, 2.0)) * random.uniform(0.5, 1.5),
                number=random.randrange(1, 60),
            )
        )
    return faults

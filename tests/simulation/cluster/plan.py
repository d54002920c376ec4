"""The plan that a seed makes for a cluster: its size, its durability, which clients run, and which faults happen when.

Three settings of durability, by the power failures that happen:
`cached`   the defaults, without power failures: acknowledged data survives kill -9.
`synced`   flush.messages=1: power fails anywhere, on all brokers at once too.
`guarded`  the defaults: power fails on one broker while another replica that is in sync stays alive. No other fault
           hits a broker until the first is in no ISR any more, or has caught up.
"""

from __future__ import annotations

from random import Random

from simulation.plan import CODECS, Fault, Plan

DURABILITIES = ("cached", "cached", "synced", "guarded")
WORKLOADS = ("transactions", "copier", "group", "admin", "reassignment")
SESSION_TIMEOUT_S = 1.2
# Replication factor and min.insync.replicas of the topics.
_PROMISES = ((3, 2), (3, 2), (3, 2), (3, 2), (3, 1), (3, 1), (2, 1), (1, 1))

_BROKER_FAULTS = (
    "kill",
    "kill",
    "restart",
    "pause",
    "kill leader",
    "kill controller",
    "rolling restart",
    "isolate leader",
)
_STORE_FAULTS = ("store cut", "expire", "expire controller", "store part", "store one way", "store slow")
LEADER_FAULTS = ("flap", "flap", "late fetches", "stale controller", "depose controller", "lagging preferred")
_LINK_FAULTS = ("link part", "link one way", "link slow", "isolate", "cut")
_CLIENT_FAULTS = ("stop client", "kill client", "client part")
_MACHINE_FAULTS = ("clock", "disk error", "full disk")
_POWER_FAULTS = ("power", "power", "power at operation")
_SLOW_DISK_SHARE = 0.3
STORE_LOSSES = ("store emptied", "store replaced", "store pauses", "store restored", "topics removed")
_STORE_LOSS_SHARE = 0.4
_DELETION_SHARE = 0.3


def cluster_plan_of(seed: int) -> Plan:
    """The plan for a cluster."""
    random = Random(f"{seed}/cluster plan")
    durability = random.choice(DURABILITIES)
    brokers = random.choice((3, 3, 3, 4, 5))
    replicas, min_isr = random.choice(_PROMISES)
    workloads = tuple(random.sample(WORKLOADS, 1 if random.random() < 0.7 else 2))
    length_s = random.uniform(1.0, 3.0)
    deletes_records = Random(f"{seed}/deletions").random() < _DELETION_SHARE
    keeps_topics = deletes_records or bool({"transactions", "copier", "admin"} & set(workloads))
    return Plan(
        seed,
        durability,
        partitions=random.randrange(1, 3),
        length_s=length_s,
        codec=random.choice(CODECS),
        workloads=workloads,
        properties=_properties(random, durability, min_isr),
        faults=tuple(
            sorted(
                [
                    *_faults(random, durability, length_s),
                    *_slow_disks(seed, length_s),
                    *_store_losses(seed, durability, length_s, keeps_topics=keeps_topics),
                ],
                key=lambda fault: fault.time_s,
            )
        ),
        brokers=brokers,
        replicas=replicas,
        min_isr=min_isr,
        deletes_records=deletes_records,
    )


def _properties(random: Random, durability: str, min_isr: int) -> dict[str, str]:
    properties = {
        "min.insync.replicas": str(min_isr),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.min.session.timeout.ms": "500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
        "replica.lag.time.max.ms": str(random.choice((500, 800))),
        "replica.fetch.wait.max.ms": "250",
        "replica.fetch.backoff.ms": "100",
        # With small responses a follower needs many fetches to catch up.
        "replica.fetch.response.max.bytes": random.choice(("500", "10485760")),
        "replica.socket.timeout.ms": "1000",
        "controlled.shutdown.retry.backoff.ms": "200",
        "leader.imbalance.check.interval.seconds": random.choice(("1", "300")),
        "replica.high.watermark.checkpoint.interval.ms": str(random.choice((200, 5000))),
        "log.index.interval.bytes": str(random.choice((64, 4096))),
        "log.index.size.max.bytes": str(random.choice((64, 10_485_760))),
        "log.segment.delete.delay.ms": "500",
        "auto.create.topics.enable": "false",
    }
    if durability == "synced":
        properties["log.flush.interval.messages"] = "1"
    return properties


def _faults(random: Random, durability: str, length_s: float) -> list[Fault]:
    groups = [_BROKER_FAULTS, _BROKER_FAULTS, LEADER_FAULTS, LEADER_FAULTS]
    groups += [_STORE_FAULTS, _LINK_FAULTS, _CLIENT_FAULTS, _MACHINE_FAULTS]
    if durability != "cached":
        groups += [_POWER_FAULTS] * 3
    faults = []
    for _ in range(random.randrange(2, 7)):
        name = random.choice(random.choice(groups))
        if name == "disk error" and durability == "guarded":
            continue  # a failed sync loses data, as a power failure does
        if name == "power" and durability == "synced" and random.random() < 0.3:
            name = "power everywhere"
        faults.append(
            Fault(
                random.uniform(0.1, length_s),
                name,
                seconds=random.choice((0.05, 0.3, 1.0, 2.5)) * random.uniform(0.5, 1.5),
                number=random.randrange(1, 60),
            )
        )
    return faults


def _slow_disks(seed: int, length_s: float) -> list[Fault]:
    """Slow disks, in addition to the other faults: everything else then meets syncs that are in progress."""
    random = Random(f"{seed}/slow disks")
    if random.random() >= _SLOW_DISK_SHARE:
        return []
    return [
        Fault(random.uniform(0, length_s / 2), "slow disk", random.uniform(0.5, 2.5), random.randrange(1, 60))
        for _ in range(random.randrange(1, 3))
    ]


def _store_losses(seed: int, durability: str, length_s: float, *, keeps_topics: bool) -> list[Fault]:
    """A loss of the store's data, in addition to the other faults.

    Topics are not lost under transactions, whose markers cannot be written then, or under clients that create them
    again.
    """
    random = Random(f"{seed}/store losses")
    if durability != "cached" or random.random() >= _STORE_LOSS_SHARE:
        return []
    kind = random.choice(STORE_LOSSES[:3] if keeps_topics else STORE_LOSSES)
    return [Fault(random.uniform(0.1, length_s), kind, random.uniform(0.1, 4.0), random.randrange(1, 60))]

"""Matches the regular expressions of a group with the topics, and raises the group's epoch if the result changed.

A heartbeat begins a run: at once for a new expression, and for all expressions of the group after topics were added or
removed, or after `group.consumer.regex.refresh.interval.ms`. Kafka waits up to 10 seconds between two runs. Felice
waits so only before it matches known expressions again: a new expression does not wait for an earlier run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace

from felice.coordinator.group.consumer.expressions import May, matched_names
from felice.coordinator.group.consumer.group import ConsumerGroup
from felice.coordinator.group.consumer.target import RETRY_MS, TryLater
from felice.coordinator.group.consumer.values import EpochRecord, ExpressionRecord, ResolvedExpression
from felice.coordinator.group.records import Record
from felice.coordinator.group.turn import Turn
from felice.coordinator.shard import Instant, Outcome
from felice.dataclass import dataclass

MIN_REPETITION_MS = 10_000
"""The minimum time between two runs that match known expressions again."""
MIN_PAUSE_MS = 1_000
"""The minimum time between any two runs, so that a client with a new expression in each heartbeat uses little CPU."""


@dataclass(slots=True)
class ResolveExpressions:
    """Matches expressions of a group in a thread. Implements `coordinator.shard.Work`."""

    group: ConsumerGroup
    expressions: tuple[str, ...]
    names: Collection[str]
    version: int
    may_describe: May | None
    found: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For the log."""
        return f"resolve {self.group.group_id}"

    def run(self) -> None:
        """Matches all names with each expression."""
        self.found = matched_names(self.expressions, self.names, self.may_describe)

    def on_done(self, now: Instant, fault: Exception | None) -> Outcome[Record]:
        """Stores the topics of each expression that is still in use. If they changed, raises the group's epoch."""
        group = self.group
        group.is_resolving = False
        group.resolved_ms = now.steady_ms
        if fault is not None:
            group.retry_at_ms = now.steady_ms + RETRY_MS
        if fault is not None or not group.is_live:
            return Outcome()
        records: list[Record] = []
        is_changed = False
        for expression, topics in self.found.items():
            if expression not in group.expression_users:
                continue
            before = group.expressions.get(expression)
            is_changed |= before is None or before.topics != topics
            resolved = ResolvedExpression(topics, self.version, now.wall_ms)
            records.append(ExpressionRecord(group.group_id, expression, resolved))
        if is_changed:
            raised = replace(group.epoch, epoch=group.epoch.epoch + 1)
            records.append(EpochRecord(group.group_id, raised))
            group.seen_topics = -1
        elif group.expression_users.keys() <= self.found.keys():
            # Only without a change: the records of a change may be refused, and the next run must then see the change.
            group.resolved_version = self.version
        return Outcome(records=records, after_write=[TryLater(group)] if records else [])


def resolution_for(
    group: ConsumerGroup, joining: str, may_describe: May | None, turn: Turn
) -> ResolveExpressions | None:
    """The run that must begin now, or None. `joining` is the expression of the member that sends the heartbeat."""
    users = {*group.expression_users, joining} if joining else group.expression_users
    if not users or group.is_resolving:
        return None
    since_ms = MIN_REPETITION_MS if group.resolved_ms is None else turn.now.steady_ms - group.resolved_ms
    if since_ms < MIN_PAUSE_MS or turn.now.steady_ms < group.retry_at_ms:
        return None
    if since_ms >= MIN_REPETITION_MS and _is_old(group, turn):
        wanted = tuple(sorted(users))
    else:
        wanted = tuple(sorted(expression for expression in users if expression not in group.expressions))
    if not wanted:
        return None
    return ResolveExpressions(group, wanted, tuple(turn.topics.by_name), turn.topics.version, may_describe)


def _is_old(group: ConsumerGroup, turn: Turn) -> bool:
    if group.resolved_version != turn.topics.version:
        return True
    oldest_ms = min(
        (resolved.resolved_at_ms for resolved in group.expressions.values()), default=turn.now.wall_ms
    )
    return turn.now.wall_ms - oldest_ms >= turn.settings.consumer_regex_refresh_interval_ms

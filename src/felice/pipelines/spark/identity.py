"""The transactional ids of a query's tasks: `felice-spark-QUERY-PROCESS-SLOT-ATTEMPT`.

Keeps true: one process alone uses an id, and for at most one transaction of a batch. Beginning a transaction aborts an
            open transaction with the same id. Because ids differ, no task can abort what another task wrote: neither
            a late or speculative task, nor a task of a stage or of a write that runs again.
How:        PROCESS is a random name that a worker process chooses. It chooses a new name for an id that it would use
            for the same batch again, or for an older one. Ids are used again in later batches, because brokers
            remember each of them for days.
"""

from __future__ import annotations

import os
import secrets

from felice.dataclass import dataclass

PREFIX = "felice-spark"
REMEMBERED_IDS = 10_000
_PROCESS_BYTES = 4


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The query, the batch, and the part of the batch that a task writes."""

    query_id: str
    batch_id: int
    slot: int
    attempt: int


def task_prefix(query_id: str) -> str:
    """The prefix of the transactional ids of a query's tasks."""
    return f"{PREFIX}-{query_id}-"


def is_of_task(transactional_id: str, query_id: str) -> bool:
    """Whether the id belongs to a task of this query; the name of another may begin with this query's name."""
    prefix = task_prefix(query_id)
    parts = transactional_id.removeprefix(prefix).split("-")
    return transactional_id.startswith(prefix) and len(parts) == 3 and all(map(str.isdigit, parts[1:]))


class TransactionNames:
    """The ids that one process has used."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._used: dict[tuple[str, int, int], tuple[str, int]] = {}
        self._process_id = os.getpid()
        self._process = secrets.token_hex(_PROCESS_BYTES)

    def next(self, task: TaskIdentity) -> str:
        """An id under which no transaction of this batch has begun."""
        if self._process_id != os.getpid() or len(self._used) >= REMEMBERED_IDS:
            self._forget()  # Spark forks its workers: a child must not go on with its parent's names.
        key = task.query_id, task.slot, task.attempt
        process, batch_id = self._used.get(key, (self._process, -1))
        if batch_id >= task.batch_id:
            process = secrets.token_hex(_PROCESS_BYTES)
        self._used[key] = process, task.batch_id
        return f"{task_prefix(task.query_id)}{process}-{task.slot}-{task.attempt}"


NAMES = TransactionNames()

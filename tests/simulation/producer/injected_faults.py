"""Deliberate mistakes in the producer, each of which a run of a producer must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from felice.client.produce.accumulator import Accumulator
from felice.client.produce.batches import PartitionQueue, ProducerBatch
from felice.client.produce.sender import Sender
from felice.client.produce.serving import FirstError, ServedInbox
from simulation.injected_faults import InjectedFault, _replace
from simulation.plan import Plan


def _any(plan: Plan) -> bool:
    return True


def _lets_offers_in_always(
    accumulator: Accumulator, queue: PartitionQueue, builder: Any, batch: ProducerBatch
) -> None:
    limits = accumulator.limits
    builder.open_for_offers(accumulator._bounds, limits.batch_records, limits.batch_size_bytes, batch.reports)


def _ignores_held_records(accumulator: Accumulator, record: Any) -> bool | None:
    with accumulator.lock:
        accumulator._check_open()
        if not accumulator._bounds.has_room(record.size_bytes):
            raise BufferError
        topic = accumulator._topic(record.topic)
        if not topic.queues:
            return accumulator._hold(topic, record)
        if record.partition == -1:
            if record.key is not None or not accumulator._sticks_without_key:
                return None
            record.partition = -2
        now = accumulator._clock()
        return accumulator._append_to(accumulator._queue_of(topic, record.partition, now), record, now)


def _fills_while_open(accumulator: Accumulator, queue: Any, batch: ProducerBatch, record: Any) -> int:
    assert batch.builder is not None
    if record.report is not None:
        batch.add_report(batch.builder.record_count, record.report)
    return batch.builder.append(record.timestamp, record.key, record.value, record.headers or ())


def _loses_batches_that_cannot_be_encoded(sender: Sender, queue: Any, leader: int, identity: Any) -> Any:
    with sender._accumulator.lock:
        if not queue.ready or not queue.may_send_to(leader):
            return None
        batch = queue.ready[0]
        try:
            return queue.take(identity, leader)
        except Exception:
            queue.ready.remove(batch)
            return None


class _ServingEnds(Exception):
    pass


class _NothingAfterAnError(FirstError):
    def add(self, error: BaseException) -> None:
        super().add(error)
        raise _ServingEnds


def _stops_at_an_exception(original: Callable[..., int]) -> Callable[..., int]:
    def serve(inbox: Any, errors: FirstError) -> int:
        with _NothingAfterAnError() as first:
            try:
                return original(inbox, first)
            except _ServingEnds:
                inbox._due.clear()
        return 1

    return serve


def _forgets_the_waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda sender: setattr(sender, "_closed", True)


INJECTED_FAULTS = (
    InjectedFault(
        "held are overtaken",
        "while held records are appended, new ones are appended without the lock",
        _replace(Accumulator, "_let_offers_in", _lets_offers_in_always),
        _any,
        seed=1,
    ),
    InjectedFault(
        "held are ignored",
        "a record is appended although records before it are held",
        _replace(Accumulator, "_append_or_hold", _ignores_held_records),
        _any,
        seed=2,
    ),
    InjectedFault(
        "swapped reports",
        "a record and its report are added in two steps, between which another thread adds a record",
        _replace(Accumulator, "_fill", _fills_while_open),
        _any,
        seed=6,
    ),
    InjectedFault(
        "failed encoder",
        "a batch that cannot be encoded disappears",
        _replace(Sender, "_take", _loses_batches_that_cannot_be_encoded),
        _any,
        seed=3,
    ),
    InjectedFault(
        "raising callback",
        "the reports behind one whose callback raised are not served",
        _replace(ServedInbox, "serve", _stops_at_an_exception(ServedInbox.serve)),
        _any,
        seed=1,
    ),
    InjectedFault(
        "silent close",
        "records that are left when the producer closes have no report",
        _replace(Sender, "close", _forgets_the_waiting(Sender.close)),
        _any,
        seed=2,
    ),
)

"""Batches of idempotent producers that were refused for a reason that passes, and those behind them on the wire. Pure.

Keeps true: a batch whose forerunner was refused for a while is refused for the same reason, not for being out of
            order, until the forerunner has come again. A producer that is told of disorder begins a new epoch and
            writes anew what it does not know to be written, in every partition; some of it may be there already.
            (In Kafka the same is rarer: a disk that refuses one batch there refuses all from then on.)
"""

from __future__ import annotations

from dataclasses import dataclass

from felice.env import Buffer
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import BatchHeader

_PASSING = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
# Producers remembered; the one that was refused longest ago is forgotten first.
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class _Refused:
    """Not the error itself: that holds on to the frames it came through, and with them to the batch."""

    epoch: int
    sequence: int
    code: int
    message: str


class Refusals:
    """The last refusal of each producer of one partition."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        self.refused: dict[int, _Refused] = {}

    def __len__(self) -> int:
        return len(self.refused)

    def judge(self, records: Buffer, error: ApiError) -> None:
        """Takes note of the error that a batch met; raises what the producer is to be told instead, if so."""
        if error.code in _PASSING:
            self._note(BatchHeader.parse(records), error)
        elif error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            header = BatchHeader.parse(records)
            earlier = self.refused.get(header.producer_id)
            if earlier is not None and _is_behind(header, earlier):
                raise ApiError(ErrorCode(earlier.code), earlier.message)

    def _note(self, header: BatchHeader, error: ApiError) -> None:
        if header.producer_id < 0:
            return
        earlier = self.refused.get(header.producer_id)
        if earlier is not None and _is_behind(header, earlier):
            return
        self.refused.pop(header.producer_id, None)
        self.refused[header.producer_id] = _Refused(
            header.producer_epoch, header.base_sequence, error.code, error.message
        )
        if len(self.refused) > _MOST:
            del self.refused[next(iter(self.refused))]

    def forget(self, records: Buffer) -> None:
        """A batch of the producer was taken: those behind it are judged by themselves again."""
        self.refused.pop(BatchHeader.parse(records).producer_id, None)


def _is_behind(header: BatchHeader, earlier: _Refused) -> bool:
    """Sequences come round after 2^31 - 1."""
    distance = (header.base_sequence - earlier.sequence) % 2**31
    return header.producer_epoch == earlier.epoch and 0 < distance < 2**30

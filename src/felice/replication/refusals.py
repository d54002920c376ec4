"""Batches of idempotent producers that were refused for a passing reason, and the batches behind them. Pure.

Keeps true: a batch behind a refused batch of the same producer gets the same error, not OUT_OF_ORDER_SEQUENCE_NUMBER,
            until the refused batch has come again. A producer that hears of disorder starts a new epoch and sends
            again every batch whose fate it does not know, in every partition; some of these may have been written.
            (Kafka meets this less often: a disk that refuses one batch there refuses all following ones.)
"""

from __future__ import annotations

from felice.dataclass import dataclass
from felice.env import Buffer
from felice.protocol.errors import ApiError, ErrorCode
from felice.records.batch import BatchHeader

_TRANSIENT = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR)
# Producers remembered; the producer that was refused longest ago is forgotten first.
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class _Refused:
    """Code and message of an error. The exception itself would keep the batch alive through its traceback."""

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

    def check(self, records: Buffer, error: ApiError) -> None:
        """Notes the error of a batch; raises the earlier error instead if the batch was behind a refused one."""
        if error.code in _TRANSIENT:
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
        """A batch of the producer was appended: its following batches are checked on their own again."""
        self.refused.pop(BatchHeader.parse(records).producer_id, None)


def _is_behind(header: BatchHeader, earlier: _Refused) -> bool:
    """Whether the batch follows the refused one. Sequence numbers wrap after 2^31 - 1."""
    distance = (header.base_sequence - earlier.sequence) % 2**31
    return header.producer_epoch == earlier.epoch and 0 < distance < 2**30

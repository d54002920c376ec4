"""The results of a fetch from one partition."""

from __future__ import annotations

from felice.dataclass import dataclass
from felice.env import FileSlice
from felice.log.transaction_index import AbortedTransaction
from felice.replication.divergence import Divergence


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Whole batches of one partition, and the offsets that a Fetch response reports with them."""

    records: FileSlice | None
    """None if there is no batch between the fetch offset and the bound."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None
    """Aborted transactions within `records`, for a read_committed consumer; otherwise None."""
    divergence: Divergence | None = None
    """Set if the follower's log diverged from this one; the follower truncates there before it fetches again."""

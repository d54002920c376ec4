"""The processing log: which expression failed for which query, as records of a topic in ksqlDB's form."""

from __future__ import annotations

import time
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.side_output import SideOutput

TOPIC_SETTING = "ksql.logging.processing.topic.name"
"""The setting that names the topic. Without it, failures are not logged."""
_PROCESSING_ERROR = 1


@dataclass(frozen=True, slots=True)
class ProcessingLog:
    """Writes the failures of one query."""

    output: SideOutput
    query: str

    def __call__(self, what: str, error: BaseException) -> None:
        """Log that a column or clause of the record that is processed has failed."""
        reason = f"{what}: {error}" if str(error) else f"{what}: {type(error).__name__}"
        entry: dict[str, Any] = {
            "level": "ERROR",
            "logger": f"processing.{self.query}",
            "time": time.time_ns() // 1_000_000,
            "message": {
                "type": _PROCESSING_ERROR,
                "deserializationError": None,
                "recordProcessingError": {"errorMessage": reason, "record": None, "cause": []},
                "productionError": None,
            },
        }
        self.output(None, entry)

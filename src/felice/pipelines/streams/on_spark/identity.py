"""Which query runs a task, and whether its checkpoint is the one that the state belongs to."""

from __future__ import annotations

from pathlib import Path

from pyspark import TaskContext

from felice.pipelines.spark.properties import QUERY_ID
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError


def check_query(checkpoint: str) -> None:
    """Raise `CheckpointError` unless this task belongs to the query with this checkpoint."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if query is None:
        raise CheckpointError("only a streaming query can read the DataFrame of a Stream")
    try:
        owner: str | None = Checkpoint(Path(checkpoint)).query_id
    except FileNotFoundError:
        owner = None
    if owner != query:
        raise CheckpointError(
            "the query does not use the checkpoint that was passed to `df`; start it with the option "
            f"checkpointLocation={checkpoint}"
        )

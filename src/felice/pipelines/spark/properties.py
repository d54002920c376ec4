"""Names of the local properties from which a Spark task learns its streaming query."""

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"

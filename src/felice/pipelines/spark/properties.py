"""Names of the local properties from which a Spark task learns its streaming query."""

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
# Spark gives all jobs of one run of a query the run's id as their group.
RUN_ID = "spark.jobGroup.id"

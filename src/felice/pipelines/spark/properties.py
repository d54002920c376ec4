"""What Spark's engine tells a task of the streaming query that it belongs to: names of local properties."""

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
# Spark gives all jobs of one run of a query the run's id as their group.
RUN_ID = "spark.jobGroup.id"

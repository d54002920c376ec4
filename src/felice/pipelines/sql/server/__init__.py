"""The SQL server: statements in a topic, persistent queries on Spark, and ksqlDB's REST API in front of them."""

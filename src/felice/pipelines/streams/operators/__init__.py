"""The operators: each takes one record and returns its results, like the processors of Kafka Streams."""

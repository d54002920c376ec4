"""The operators: each takes one record and returns the records that follow from it, as Kafka Streams' processors do."""

"""The topics and files that hold what a worker must not forget, in Kafka Connect's keys and formats."""

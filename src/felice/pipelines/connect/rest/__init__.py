"""The REST API of workers, with the paths, answers and errors of Kafka Connect's."""

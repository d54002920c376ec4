"""The schema registry: a server with the REST API of Confluent's, which keeps its state in the topic `_schemas`."""

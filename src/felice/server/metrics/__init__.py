"""Metrics of a broker: counted while it works, read from its state on request, shown under Kafka's names."""

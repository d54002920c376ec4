"""Kafka's wire protocol without any I/O: messages, codec, frames, connections, errors."""

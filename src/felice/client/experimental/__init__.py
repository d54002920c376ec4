"""confluent_kafka's former name for the package of `felice.client.aio`."""

"""The blocking producer and consumer, with confluent_kafka's names. Import them from `felice.client`."""

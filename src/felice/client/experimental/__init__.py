"""Where confluent_kafka once kept what is now in `felice.client.aio`."""

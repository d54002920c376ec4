"""Tables of Iceberg, through pyiceberg. The options are those of Iceberg's sink for Kafka Connect."""

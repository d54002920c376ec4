"""A random comparison of Felice with Apache Kafka: the same operations on both, differing answers printed."""

"""Kafka's transformations of single records, and the predicates that decide which records they are applied to."""

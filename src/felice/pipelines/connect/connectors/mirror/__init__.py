"""Mirrors topics, configurations, access rules and groups of another cluster, as Kafka's MirrorMaker 2 does."""

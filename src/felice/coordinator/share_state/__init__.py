"""Share group states: where each share group is in each partition, durable in `__share_group_state` (KIP-932).

Pure: `states` (values, and how updates are laid over them), `records` (Kafka's format), `settings`, `shard` (all states
of one partition of the topic) and `needed` (from which offset on the topic's log is still needed).
"""

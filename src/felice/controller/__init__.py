"""The controller: decides topics, placement and configuration, and writes them to the store.

`placement`, `topic_names`, `config_changes` and `election` decide (pure); `service` writes.
"""

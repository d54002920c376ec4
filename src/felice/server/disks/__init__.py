"""The log directories, the cleaner, and the moves of replicas between directories."""

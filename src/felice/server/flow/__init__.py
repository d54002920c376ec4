"""Flow control of connections and requests: turns, pauses, memory, limits, and the times and log lines of requests."""

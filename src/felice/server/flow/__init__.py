"""Flow control of connections and requests: turns, pauses, memory, limits, and what is noted of each request."""

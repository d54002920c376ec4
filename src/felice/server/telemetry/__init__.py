"""Metrics that clients push (KIP-714): subscriptions, the clients that have one, and the newest values.

Keeps true: memory is bounded for every input: `MAX_CLIENTS` clients, `MAX_SERIES` series of all clients
            together, `MAX_SERIES_OF_CLIENT` of one, and `telemetry.max.bytes` for each push.
"""

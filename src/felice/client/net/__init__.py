"""Connections to brokers, what is known of the cluster, and the requests that all clients send."""

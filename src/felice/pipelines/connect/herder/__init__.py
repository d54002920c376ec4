"""Decides what a worker runs: connectors and tasks from their configurations, and what users ask of them."""

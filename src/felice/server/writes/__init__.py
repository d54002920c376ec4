"""Checks before records are written: batches, producers, and transactions."""

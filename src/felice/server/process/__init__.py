"""Brokers as processes: one, several on a machine, and one inside a test."""

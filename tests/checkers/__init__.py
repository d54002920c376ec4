"""Checkers: functions that take a history of what clients did and saw, and return the anomalies in it."""

"""Pipelines: what reads topics, computes, and writes topics, always on Spark."""

"""Simulation runs of one producer whose application has several threads."""

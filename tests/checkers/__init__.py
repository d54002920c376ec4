"""Judges of histories: what was promised to clients, and whether it was kept."""

"""Committed offsets, the same for every kind of group: how they are written, read, and when they expire."""

"""Runs of the writers of a compacted topic, and of the members of an election, with the checks of both."""

"""Listeners and the sessions of their connections."""

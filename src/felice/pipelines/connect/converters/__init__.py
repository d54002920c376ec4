"""Converters between the bytes of topics and the values of Connect."""

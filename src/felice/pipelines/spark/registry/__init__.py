"""Columns whose types are schemas of a registry: `from_registry` and `to_registry`."""

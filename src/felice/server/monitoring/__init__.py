"""The HTTP endpoint for metrics and health, and where it reads each value."""

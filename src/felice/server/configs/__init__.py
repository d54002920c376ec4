"""The configuration in force: its sources, their entries, and the levels of loggers."""

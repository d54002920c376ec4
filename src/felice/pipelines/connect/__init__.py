"""Connect: import and export between topics and other systems, run by Spark."""

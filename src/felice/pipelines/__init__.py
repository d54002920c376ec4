"""Programs that read topics, compute and write topics: the Spark data source, and stream applications."""

"""Runs Apps on Spark.

`runner` starts the query in the driver; `stage` runs tasks in the workers; `state` keeps their stores on disk.
"""

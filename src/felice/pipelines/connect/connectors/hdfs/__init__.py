"""Files of records in HDFS, through WebHDFS, or in a local file system.

The options are those of Confluent's HDFS sink, and so are the names of files.
"""

"""Files of records in a store of objects (S3), with names and cuts that a repetition makes again.

The options are those of Confluent's S3 sink.
"""

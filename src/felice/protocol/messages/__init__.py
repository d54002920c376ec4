"""One module per API, one class for all versions of a request, a response or a record.

Field and struct names are Kafka's. The docstrings describe a version's changes where they alter the meaning.
"""

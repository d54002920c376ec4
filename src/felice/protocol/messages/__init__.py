"""One module per API, one class for all versions of a request, a response or a record.

Field and struct names are Kafka's. What a version changed is said in the docstrings where it alters meaning.
"""

"""The server: connections, requests, and the broker that composes everything below.

`broker` is the composition root, `listener` and `session` move bytes, `handlers` answer.
"""

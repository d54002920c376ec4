"""The server: connections, requests, and the broker that composes everything below.

`composition` creates the components of a broker, and `broker` starts and stops them. `listener` and `session` move
bytes, `handlers` answer.
"""

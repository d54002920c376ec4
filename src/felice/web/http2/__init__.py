"""HTTP/2 (RFC 9113) for every server of the web stack, with the library `h2`, which is optional.

`switching` recognises clients of HTTP/2, and works without `h2`. A server imports the modules that need `h2` when the
first client of HTTP/2 connects.
"""

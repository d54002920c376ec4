"""HTTP/2 (RFC 9113) for every server of the web stack, on the library `h2`, which is optional.

`switching` finds a client that speaks it, and works without `h2`. Everything else here is imported with the first one.
"""

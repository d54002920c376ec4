"""Authorisation of requests: each handler's module declares the guard of its API.

Keeps true: with an authorizer, no handler runs before the needs of its API were checked. Without one, requests go to
            their handlers directly, and no guard runs.
How:        a guard (`guards`) stands before a handler: it refuses the request as a whole, or takes the refused items
            out of the request and adds their refusals (`refusals`) to the handler's response. A few handlers ask
            `context.access` themselves.
"""

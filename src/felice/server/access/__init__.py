"""Authorisation of requests: each handler's module declares the guard of its API.

Keeps true: with an authorizer, no handler runs before the needs of its API were checked. Without an authorizer,
            requests go directly to their handlers, and no guard runs.
How:        a guard (`guards`) runs before a handler: it refuses the request as a whole, or removes the refused items
            from the request and adds their refusals (`refusals`) to the handler's response. A few handlers check
            permissions themselves, with `context.access`.
"""

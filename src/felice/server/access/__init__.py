"""Authorisation of requests: `control` asks the authorizer, `table` names what each API needs.

Keeps true: with an authorizer, no handler runs before the needs of its API were checked. Without one, requests go to
            their handlers directly, and nothing here runs.
How:        a `Guard` stands before a handler: it refuses the request as a whole, or takes the refused items out of the
            request and adds their refusals to the handler's response. A few handlers ask `context.access` themselves.
"""

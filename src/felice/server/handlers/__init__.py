"""One module per API, and the table of them: what is in it is offered to clients, and nothing else.

A handler is `handle(request, context)`. What it does before it returns happens in the order of
the connection's requests; what it awaits may overlap with the next.
"""

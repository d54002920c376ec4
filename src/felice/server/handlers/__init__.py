"""One module per API; `table` names them.

A handler is `handle(request, context)`. What it does before it returns happens in the order of
the connection's requests; what it awaits may overlap with the next.
"""

"""One module per API; `table` names them.

A handler is `handle(request, context)`. Its work before it returns or first awaits is done in the order of the
connection's requests. The rest may overlap with the next request.
"""

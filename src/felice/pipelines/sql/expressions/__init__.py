"""Expressions: their types, and the Python that computes them.

moments      dates, times and timestamps in texts
texts        values as Java prints them
arithmetic   Java's arithmetic, with its widths, roundings and errors
casts        values of one type as values of another
code         a piece of Python, with its type
coercion     values of two types as values of one
refusals     why parts of an expression do not fit each other
comparisons  comparisons, BETWEEN, IN, LIKE
calls        calls of functions
compiler     each expression as code
"""

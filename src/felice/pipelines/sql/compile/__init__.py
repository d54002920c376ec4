"""A plan to a stream application.

operators   an operator that gives rows to a generated function
generated   functions over rows, written from expressions
aggregates  functions of an aggregation
topology    the application
"""

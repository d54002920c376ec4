"""A plan to a stream application.

operators   an operator that gives rows to a generated function
generated   functions over rows, written from expressions
functions   the functions of one plan
event_time  the time of a record, from a column
selection   WHERE, PARTITION BY and the projection of a stream
aggregates  functions of an aggregation
grouping    GROUP BY
joining     the joins of streams and tables
topology    the application: sources, joins, and what follows them
"""

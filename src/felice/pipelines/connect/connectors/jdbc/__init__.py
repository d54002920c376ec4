"""Databases, through SQLAlchemy: a source that reads tables, and a sink that writes them.

The options are those of Confluent's JDBC connectors. The drivers are Python's, chosen by the URL of Java's driver.
"""

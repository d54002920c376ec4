"""The changes of tables in PostgreSQL, read from its log: rows as they are, then each insert, update and delete.

Options, topics and records are those of Debezium's connector, so that its consumers and its transformation
`ExtractNewRecordState` understand them.
"""

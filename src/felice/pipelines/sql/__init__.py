"""Streaming SQL in ksqlDB's dialect, compiled to stream applications.

syntax          text to a tree, and a tree to text
types           types, which of two holds the values of both, and what arithmetic makes of them
functions       the library of functions; `user_functions`: those that users write
rows            formats of rows
expressions     expressions to Python
catalogue       what statements have declared
analysis        statements to plans; refuses what cannot run
statements      what a statement makes of the catalogue; `inserts`: INSERT INTO … VALUES
compile         plans to stream applications
processing_log  which expressions failed
offline         runs statements without brokers and Spark: `felice sql test`
programs        a file of statements as applications, for `felice run`
shell           the client of a server: `felice sql`

Values in Python, by type. Null is None. No value is changed after it was made.

    BOOLEAN bool; INTEGER, BIGINT int; DOUBLE float; DECIMAL decimal.Decimal with the scale of its type; STRING str;
    BYTES bytes; DATE int (days since 1970); TIME int (milliseconds since midnight); TIMESTAMP int (milliseconds since
    1970, UTC); ARRAY list; MAP dict; STRUCT tuple, with the fields in their order

A row is a tuple of its columns' values. A key is the tuple of its columns' values, too, and None if the record has no
key. In a windowed table it is a `Windowed` of such a key.
"""

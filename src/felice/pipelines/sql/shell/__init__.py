"""The shell of SQL: `felice sql`, the client of a server with ksqlDB's REST API.

parts       a text to statements and commands of the shell
client      requests to the server
printing    the server's answers as text; `describing`: those of DESCRIBE and EXPLAIN; `rows`: rows of queries;
            `output`: where text goes
session     what a statement does: variables, properties, scripts
completion  what may be typed next
console     the prompt
"""

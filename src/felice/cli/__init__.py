"""The command line: `felice …`, and the names and options of Kafka's own tools.

Keeps true: a user's mistake is answered by one line that says what to do, never
            by a traceback; exit code 0 is success, 1 a failure, 2 a wrong usage;
            with `--json` standard output holds JSON and nothing else.

Each module holds the functions of one subject and its `felice` commands;
`kafka_tools` offers the same functions under the names and options of Kafka's tools.
Commands that ask brokers use the client. `start` and `broker` run brokers; others read files, or ask ZooKeeper.
"""

"""The Python data source `felice`: Spark reads topics from it and writes topics to it.

source      the entry point that Spark calls
options     parses the options of a query, with `kafka_options` (pure)
planning    divides offsets into tasks (pure); `pushdown` narrows them by filters, whose values `filter_values` reads
cluster     the driver's requests to the brokers
reader      plans batches and streams in the driver; `lag` reports how far they are behind
fetching    reads ranges as Arrow in the workers
writer      writes Arrow to topics in the workers; `commit` (pure), `ledger` and `transactional` make it exactly once
updates     writes results in update mode
session     creates a session with the source registered; `java` finds its Java
worker_python  the program that Spark starts as Python on this machine: `ask_for_fork` gets it as a fork of the process
            `prepared`, and `early_worker` reports to Java before its imports
"""

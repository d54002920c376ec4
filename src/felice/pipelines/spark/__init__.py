"""Topics as Spark reads and writes them: the Python data source `felice`.

options     what a query asks for, with `kafka_options` (PURE)
planning    offsets to ranges to tasks           (PURE); `pushdown` narrows them by filters
cluster     what the driver asks the brokers
reader      batches and streams, in the driver; `lag` shows how far they are
fetching    ranges to Arrow, in the workers
writer      Arrow to topics, in the workers; `commit` (PURE), `ledger` and `transactional` make it exactly once
source      what Spark calls first
updates     results in update mode
session     a session with the source registered; `java` finds its Java
"""

"""Stream processing with Kafka Streams' semantics: operators, the topology that joins them, and its runners.

`felice.streams` is the public name. Levels, from the bottom: `record`, `formats`, `windows` (values); `stores`;
`operators` (pure: a record in, records out, state in stores); `topology` (which operator follows which); `side_output`
(topics to which no node leads); `task` (runs one partition of a sub-topology); `app`, `stream`, `grouped`, `tables`,
`aggregations`, `joining`, `foreign_key`, `processing`, `deduplication` (the API, which builds topologies; `plan`
decides which tables have stores); `driver` (runs an App in this process, for tests).
"""

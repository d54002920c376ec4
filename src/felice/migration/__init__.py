"""Import of a data directory of Apache Kafka, and export of one of Felice for it.

Pure: `metadata_records` reads and writes the bytes of Kafka's metadata log. `cluster_state` is what its records say,
and `znodes` makes the same of the nodes of ZooKeeper or of Felice's own store. `plan` says what an import makes of that
state and of the partitions that were found, and `bootstrap` what Kafka must be told.
Shells: `kafka_directory`, `felice_store` and `open_transactions` read directories. `new_directories` lets new ones
appear whole or not at all, `transfer` fills them (`partition_files`), and `importing` and `exporting` do the rest.
"""

"""Chaos with real processes: brokers and a ZooKeeper ensemble that are killed, stopped, cut off and filled up."""

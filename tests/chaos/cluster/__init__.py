"""Chaos with real processes: brokers and a ZooKeeper ensemble are killed, stopped, cut off, and their disks filled."""

"""Runs the same workloads on Felice and on Apache Kafka, side by side in one run.

`python -m bench --help` lists the workloads. Compare ratios: the systems take turns on one
machine, and figures are medians of several turns. An absolute rate depends on the machine.
"""

"""A simulated environment for whole brokers and clients: time, network, disk, metadata store and processes.

Keeps true: the same seed has the same result. Nothing here touches the real machine. A broker receives these parts as
            its `felice.env.Environment`, and everything that it does stays in the memory of this process.
"""

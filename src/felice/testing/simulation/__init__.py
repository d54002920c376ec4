"""The outside world of a broker, made up: a disk, and what else a whole broker runs on without a machine.

Keeps true: the same seed does the same thing. Nothing here touches the machine: hand these parts to a broker
            as its `felice.env.Environment`, and everything that it does is in this process's memory.
"""

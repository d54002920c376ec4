"""Hours of mixed load on one broker process: memory, files and every history are checked.

`python -m soak --minutes 60 --out DIR` (or `make soak MINUTES=60`); README.md describes the load and the checks.
"""

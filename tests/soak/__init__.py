"""Hours of mixed load on one broker process: memory, files and every history are judged.

`python -m soak --minutes 60 --out DIR` (or `make soak MINUTES=60`); README.md says what is done and how it is judged.
"""

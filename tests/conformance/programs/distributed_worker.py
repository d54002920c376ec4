"""Runs a distributed worker of Connect, whose tasks are processes: OPTIONS as JSON. Prints its address."""

from __future__ import annotations

import json
import logging
import sys
import threading

from connect_worker import ServedWorker

logging.basicConfig(level=logging.INFO)
worker = ServedWorker(json.loads(sys.argv[1]), distributed=True)
print(worker.url, flush=True)
threading.Event().wait()

"""How the worker and its tasks, which run in other processes, talk."""

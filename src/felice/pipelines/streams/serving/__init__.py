"""Answers queries of an application's state, and its metrics, over HTTP: `felice streams serve`."""

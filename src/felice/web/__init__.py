"""The web stack of Felice's HTTP servers (schema registry, console, Connect's REST): Starlette on uvicorn.

`application` makes an application from routes, and `serving` serves it. The broker imports nothing from here: its own
endpoint for metrics is `felice.server.monitoring.http` (docs/decisions/0020-web-stack.md).
"""

"""The root, /health and /connector-plugins."""

from __future__ import annotations

from starlette.responses import Response

from felice import __version__
from felice.pipelines.connect.configuration.connector import CONNECTOR_CLASS
from felice.pipelines.connect.configuration.definitions import ConfigDefinitions
from felice.pipelines.connect.herder.errors import bad_request, not_found
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.plugins import Kind, Plugin
from felice.pipelines.connect.rest.call import Call
from felice.pipelines.connect.rest.documents import definition_document, plugin_document, validation_document

_CONNECTORS = (Kind.SOURCE, Kind.SINK)


async def get_root(call: Call) -> Response:
    """GET /."""
    return call.answer({"version": __version__, "commit": "", "kafka_cluster_id": call.herder.cluster_id})


async def get_health(call: Call) -> Response:
    """GET /health (KIP-1017): a worker answers requests only after its start."""
    message = "Worker has completed startup and is ready to handle requests."
    return call.answer({"status": "healthy", "message": message})


async def list_plugins(call: Call) -> Response:
    """GET /connector-plugins."""
    found = call.herder.plugins
    chosen = found.of(*_CONNECTORS) if call.flag("connectorsOnly", default=True) else list(found)
    return call.answer([plugin_document(one, _version(one)) for one in chosen])


def _version(plugin: Plugin) -> str | None:
    return plugin.load().version if plugin.kind in _CONNECTORS else __version__


async def get_plugin_config(call: Call) -> Response:
    """GET /connector-plugins/{plugin}/config."""
    name = call.path("plugin")
    try:
        plugin = call.herder.plugins.get(name, *Kind)
    except ConfigError:
        raise not_found(f"Unknown plugin {name}.") from None
    own: ConfigDefinitions = getattr(plugin.load(), "definitions", ConfigDefinitions())
    definitions = list(own)
    if plugin.kind in _CONNECTORS:
        common = call.herder.configurations.definitions({CONNECTOR_CLASS: plugin.name})
        definitions += [one for one in common if one.name not in own]
    return call.answer([definition_document(one) for one in definitions])


async def validate(call: Call) -> Response:
    """PUT /connector-plugins/{plugin}/config/validate."""
    name, config = call.path("plugin"), await call.config()
    herder = call.herder
    given = config.get(CONNECTOR_CLASS)
    if given is not None and _plugin_name(call, given) != _plugin_name(call, name):
        raise bad_request(f"Included connector type {given} does not match request type {name}")
    return call.answer(validation_document(name, await herder.validate(config)))


def _plugin_name(call: Call, name: str) -> str:
    try:
        return call.herder.plugins.get(name, *_CONNECTORS).name
    except ConfigError:
        return name

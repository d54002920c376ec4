"""The JSON of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.configuration.definitions import ConfigValue, Definition, text_of
from felice.pipelines.connect.configuration.validation import Validation
from felice.pipelines.connect.herder.herder import ConnectorStatus, Info
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.plugins import Plugin
from felice.pipelines.connect.storage.statuses import Status

Json = Any


def info_document(info: Info) -> Json:
    """What a connector is."""
    return {
        "name": info.name,
        "config": dict(info.config),
        "tasks": [task_document(task) for task in info.tasks],
        "type": info.type,
    }


def task_document(task: TaskId) -> Json:
    """The name of a task."""
    return {"connector": task.connector, "task": task.number}


def status_document(found: ConnectorStatus) -> Json:
    """What a connector and its tasks do."""
    return {
        "name": found.name,
        "connector": state_document(found.connector),
        "tasks": [{"id": number, **state_document(one)} for number, one in found.tasks.items()],
        "type": found.type,
    }


def state_document(status: Status) -> Json:
    """What a connector or a task does."""
    found = {"state": status.state.value, "worker_id": status.worker_id, "version": status.version}
    return found if status.trace is None else {**found, "trace": status.trace}


def plugin_document(plugin: Plugin, version: str | None) -> Json:
    """A plugin in the list."""
    found = {"class": plugin.name, "type": plugin.kind.text}
    return found if version is None else {**found, "version": version}


def definition_document(one: Definition) -> Json:
    """The definition of an option."""
    return {
        "name": one.name,
        "type": one.type.value,
        "required": one.is_required,
        "default_value": None if one.is_required else text_of(one.type, one.default),
        "importance": one.importance.value,
        "documentation": one.documentation,
        "group": one.group,
        "order_in_group": one.order,
        "width": one.width,
        "display_name": one.display_name or one.name,
        "dependents": list(one.dependents),
    }


def validation_document(name: str, found: Validation) -> Json:
    """What is wrong with a configuration."""
    return {
        "name": name,
        "error_count": found.error_count,
        "groups": list(found.groups),
        "configs": [
            {
                "definition": None if definition is None else definition_document(definition),
                "value": _value_document(value),
            }
            for definition, value in found.configs
        ],
    }


def _value_document(value: ConfigValue) -> Json:
    return {
        "name": value.name,
        "value": value.value,
        "recommended_values": list(value.recommended_values),
        "errors": list(value.errors),
        "visible": value.visible,
    }


def offsets_document(offsets: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Json:
    """The offsets of a connector."""
    return {"offsets": [{"partition": dict(place), "offset": dict(at)} for place, at in offsets]}

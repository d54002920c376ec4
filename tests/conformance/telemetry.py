"""Requests about client metrics, and OpenTelemetry's protobuf as clients send it."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from conformance.topics import wait_until
from conformance.wire import Wire
from felice.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ResourceType,
)
from felice.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from felice.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from felice.protocol.messages.push_telemetry import PushTelemetryRequest

SET, DELETE = 0, 1
CLIENT_METRICS = int(ResourceType.CLIENT_METRICS)
ZERO = uuid.UUID(int=0)
DELTA, CUMULATIVE = 1, 2


def alter(wire: Wire, name: str, **changes: str | None) -> Any:
    """Changes a resource; None deletes a configuration. `interval_ms` stands for interval.ms."""
    rows = [
        AlterableConfig(
            name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=rows)
    return wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]


def subscribe_to(wire: Wire, name: str, **configs: str) -> None:
    """Sets a resource, and waits until the broker shows it."""
    row = alter(wire, name, **configs)
    assert row.error_code == 0, row
    wait_until(lambda: configs.items() <= described(wire, name).items())


def described(wire: Wire, name: str) -> dict[str, str | None]:
    """The configurations of a resource."""
    resource = DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    (row,) = wire.ask(DescribeConfigsRequest(resources=[resource])).results
    assert row.error_code == 0, row
    return {entry.name.replace(".", "_"): entry.value for entry in row.configs}


def ask(wire: Wire, instance_id: uuid.UUID = ZERO, client_id: str = "app") -> Any:
    """The answer to a question for subscriptions."""
    return wire.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), client_id=client_id)


def push(wire: Wire, subscription: Any, metrics: bytes = b"", client_id: str = "app", **fields: Any) -> int:
    """The error code of a push."""
    request = PushTelemetryRequest(
        **{
            "client_instance_id": subscription.client_instance_id,
            "subscription_id": subscription.subscription_id,
            "terminating": False,
            "compression_type": 0,
            "metrics": metrics,
            **fields,
        }
    )
    code: int = wire.ask(request, client_id=client_id).error_code
    return code


def metrics_data(*metrics: bytes, attributes: dict[str, str] | None = None) -> bytes:
    """A message of OpenTelemetry with these metrics and attributes of the resource."""
    resource = b"".join(_message(1, _attribute(*pair)) for pair in (attributes or {}).items())
    scope = b"".join(_message(2, metric) for metric in metrics)
    return _message(1, _message(1, resource) + _message(2, scope))


def gauge(name: str, value: float, **attributes: str) -> bytes:
    return _message(1, name.encode()) + _message(5, _message(1, _point(value, attributes)))


def counter(name: str, value: int, temporality: int = DELTA, **attributes: str) -> bytes:
    point = _message(1, _point(value, attributes))
    return _message(1, name.encode()) + _message(7, point + bytes([2 << 3, temporality, 3 << 3, 1]))


def _point(value: float, attributes: dict[str, str]) -> bytes:
    rows = b"".join(_message(7, _attribute(*pair)) for pair in attributes.items())
    stamp = bytes([3 << 3 | 1]) + struct.pack("<Q", 1)
    if isinstance(value, int):
        return rows + stamp + bytes([6 << 3 | 1]) + struct.pack("<q", value)
    return rows + stamp + bytes([4 << 3 | 1]) + struct.pack("<d", value)


def _attribute(key: str, value: str) -> bytes:
    return _message(1, key.encode()) + _message(2, _message(1, value.encode()))


def _message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])

"""The file of `felice mirror`, which is that of Kafka's MirrorMaker 2: clusters, and the flows between them. Pure.

Keeps true:  every option belongs to a cluster (`A.bootstrap.servers`), to a flow (`A->B.topics`), or to all flows. An
             unknown option is refused by its name.
Source:      Kafka's `MirrorMakerConfig`: names of topics and groups of the workers, and which options count first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.connector import SOURCE as CONNECTOR_OPTIONS
from felice.pipelines.connect.configuration.worker import BOOTSTRAP, GROUP, OFFSETS_TOPIC, with_prefix
from felice.pipelines.connect.configuration.worker_options import (
    CONFIG_TOPIC,
    DISTRIBUTED,
    LISTENERS,
    REFUSED,
    SPARK,
    STATUS_TOPIC,
    WITHOUT_EFFECT,
    is_of_clients,
)
from felice.pipelines.connect.connectors.mirror.options import CHECKPOINTS, HEARTBEATS, LACKING, SOURCE
from felice.pipelines.connect.model.errors import ConfigError

_JAVA = "org.apache.kafka.connect.mirror."
CONNECTORS = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
"""The connectors of each flow, by their names."""
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_CLUSTERS = "clusters"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_CLIENTS = ("producer.", "consumer.", "admin.")
_LOGIN = ("security.", "sasl.", "ssl.")
"""Options of clients that may be given for all clusters at once."""
_MIRROR_OPTIONS = {one.name for options in (SOURCE, CHECKPOINTS, HEARTBEATS) for one in options}
_WORKER_PREFIXES = (*_CLIENTS, "config.providers", "key.converter.", "listeners.", SPARK, "value.converter.")
_CONNECTOR_PREFIXES = (*_CLIENTS, "transforms.", "predicates.", "topic.creation.")


@dataclass(frozen=True, slots=True)
class Flow:
    """A source and a target cluster: the options of the worker between them, and those of its connectors by name."""

    source: str
    target: str
    is_enabled: bool
    worker: Mapping[str, str]
    connectors: Mapping[str, Mapping[str, str]]

    @property
    def name(self) -> str:
        """As `A->B`."""
        return _flow_name(self.source, self.target)


def flows(options: Mapping[str, str]) -> list[Flow]:
    """The flows of a file that have something to do. Raises `ConfigError`."""
    aliases = _aliases(options)
    pairs = [(one, other) for one in aliases for other in aliases if one != other]
    _refuse_unknown(options, aliases, pairs)
    found = [_flow(options, source, target) for source, target in pairs]
    working = [one for one in found if one.is_enabled or _emits_heartbeats(one)]
    if not any(one.is_enabled for one in working):
        raise ConfigError(f"no flow is enabled; set for example {_flow_name(*pairs[0])}.enabled=true")
    return [one if LISTENERS not in options else _at_port(one, number) for number, one in enumerate(working)]


def _aliases(options: Mapping[str, str]) -> list[str]:
    names = [one.strip() for one in options.get(_CLUSTERS, "").split(",") if one.strip()]
    if len(set(names)) != len(names) or len(names) < 2:
        raise ConfigError(f"the option {_CLUSTERS} must name two clusters or more, as in {_CLUSTERS}=A,B")
    for one in names:
        if not _NAME.fullmatch(one):
            raise ConfigError(f"the cluster {one!r}: a name has letters, digits, - and _")
        if not options.get(f"{one}.{BOOTSTRAP}"):
            raise ConfigError(f"the option {one}.{BOOTSTRAP} is missing: the addresses of the cluster {one}")
    return names


def _refuse_unknown(
    options: Mapping[str, str], aliases: Iterable[str], pairs: Iterable[tuple[str, str]]
) -> None:
    of_clusters = tuple(f"{one}." for one in aliases)
    known = {_CLUSTERS, *(name for name in options if _is_of_all(name) or name.startswith(of_clusters))}
    for pair in pairs:
        prefix = f"{_flow_name(*pair)}."
        known |= {prefix + name for name in with_prefix(options, prefix) if _is_of_all(name)}
    if unknown := options.keys() - known:
        raise ConfigError(f"unknown options: {', '.join(sorted(unknown))}")


def _is_of_all(name: str) -> bool:
    return _is_workers(name) or _is_connectors(name) or name.startswith(_LOGIN)


def _is_workers(name: str) -> bool:
    known = name in DISTRIBUTED or name in WITHOUT_EFFECT or name in REFUSED
    return known or (name.startswith(_WORKER_PREFIXES) and name not in _MIRROR_OPTIONS)


def _is_connectors(name: str) -> bool:
    known = name in _MIRROR_OPTIONS or name in CONNECTOR_OPTIONS or name in LACKING
    return known or name.startswith(_CONNECTOR_PREFIXES)


def _flow(options: Mapping[str, str], source: str, target: str) -> Flow:
    own = with_prefix(options, f"{_flow_name(source, target)}.")
    common = {**_common(source, target, options), **{name: own[name] for name in own if _is_connectors(name)}}
    connectors = {name: {"name": name, "connector.class": _JAVA + name, **common} for name in CONNECTORS}
    is_enabled = common["enabled"].strip().lower() == "true"
    return Flow(source, target, is_enabled, _worker(options, own, source, target), connectors)


def _common(source: str, target: str, options: Mapping[str, str]) -> dict[str, str]:
    """What the connectors of a flow have, before its own options."""
    found = {name: text for name, text in options.items() if _is_connectors(name)}
    for role, alias in (("source", source), ("target", target)):
        for name, text in _of_cluster(options, alias).items():
            if name.startswith(_CLIENTS):
                found[f"{role}.{name}"] = text
            elif name == BOOTSTRAP or is_of_clients(name):
                found[f"{role}.cluster.{name}"] = text
    return {
        "enabled": "false",
        **found,
        "source.cluster.alias": source,
        "target.cluster.alias": target,
    }


def _worker(options: Mapping[str, str], own: Mapping[str, str], source: str, target: str) -> dict[str, str]:
    common = {name: text for name, text in options.items() if _is_workers(name)}
    return {
        "client.id": _flow_name(source, target),
        GROUP: f"{source}-mm2",
        CONFIG_TOPIC: f"mm2-configs.{source}.internal",
        OFFSETS_TOPIC: f"mm2-offsets.{source}.internal",
        STATUS_TOPIC: f"mm2-status.{source}.internal",
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "header.converter": _BYTES,
        LISTENERS: "http://127.0.0.1:0",
        **common,
        **_of_cluster(options, target),
        **{name: text for name, text in own.items() if _is_workers(name)},
    }


def _of_cluster(options: Mapping[str, str], alias: str) -> dict[str, str]:
    """The options of a cluster: those for all clusters, and its own."""
    common = {name: text for name, text in options.items() if name.startswith(_LOGIN)}
    return {**common, **with_prefix(options, f"{alias}.")}


def _emits_heartbeats(flow: Flow) -> bool:
    given = flow.connectors[CONNECTORS[-1]].get("emit.heartbeats.enabled", "true")
    return given.strip().lower() == "true"


def _at_port(flow: Flow, number: int) -> Flow:
    """The flow with a listener of its own: the ports follow that of the file's listener, unless it is 0."""
    listener = flow.worker[LISTENERS]
    before, colon, port = listener.rpartition(":")
    if not colon or not port.isdigit() or port == "0":
        return flow
    worker = {**flow.worker, LISTENERS: f"{before}:{int(port) + number}"}
    return Flow(flow.source, flow.target, flow.is_enabled, worker, flow.connectors)


def _flow_name(source: str, target: str) -> str:
    return f"{source}->{target}"

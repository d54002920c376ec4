"""Brokers with a plain listener, one with TLS and two with SASL PLAIN, and how a load logs in at each."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bench.systems import Felice, KafkaSystem, System, apache_kafka, free_port
from bench.workloads import Login

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USER = 'username="bench" password="secret" user_bench="secret";'
_SASL = ("sasl.mechanisms=PLAIN", "sasl.username=bench", "sasl.password=secret")
_LISTENERS = {"TLS": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}


@cache
def certificates() -> Path:
    """A directory with a certificate of a certificate authority (`ca.pem`) and the broker's key and certificate."""
    directory = Path(tempfile.mkdtemp(prefix="felice-bench-tls-"))
    subject = ["-nodes", "-newkey", "rsa:2048", "-days", "2"]
    _openssl(directory, "req", "-x509", *subject, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=bench")
    _openssl(directory, "req", *subject, "-keyout", "key", "-out", "request", "-subj", "/CN=127.0.0.1")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    _openssl(directory, "x509", "-req", "-in", "request", *signing, "-out", "certificate")
    pem = (directory / "key").read_text() + (directory / "certificate").read_text()
    (directory / "broker.pem").write_text(pem)
    return directory


def _openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60)


def _options(listeners: dict[str, int], protocols: dict[str, str]) -> list[str]:
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates() / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{_PLAIN} {_USER}",
        "listener.name.both.plain.sasl.jaas.config": f"{_PLAIN} {_USER}",
    }
    return [f"{key}={value}" for key, value in options.items()]


# The ports of each system's listeners, by its bootstrap address.
_ports: dict[str, dict[str, int]] = {}


def secured_felice() -> KafkaSystem:
    """Felice with all listeners."""
    ports = {"PLAINTEXT": free_port(), **{name: free_port() for name in _LISTENERS}}
    _ports[f"127.0.0.1:{ports['PLAINTEXT']}"] = ports
    return Felice(*_options(ports, {"PLAINTEXT": "PLAINTEXT", **_LISTENERS}))


def secured_kafka() -> KafkaSystem:
    """Apache Kafka with all listeners."""
    ports = {"PLAINTEXT": free_port(), **{name: free_port() for name in _LISTENERS}}
    controller = free_port()
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_LISTENERS}
    advertised = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    options = _options({**ports, "CONTROLLER": controller}, protocols)
    options += [f"controller.quorum.voters=1@127.0.0.1:{controller}", f"advertised.listeners={advertised}"]
    kafka = apache_kafka(*options)
    kafka.port, kafka.bootstrap = ports["PLAINTEXT"], f"127.0.0.1:{ports['PLAINTEXT']}"  # type: ignore[attr-defined]
    _ports[kafka.bootstrap] = ports
    return kafka


def login(listener: str) -> Callable[[System], Login]:
    """A function that says how librdkafka logs in at this listener (`TLS`, `LOGIN` or `BOTH`) of a system."""
    protocol = _LISTENERS[listener].lower()
    config = [f"security.protocol={protocol}"]
    if "ssl" in protocol:
        config.append(f"ssl.ca.location={certificates() / 'ca.pem'}")
    if "sasl" in protocol:
        config += _SASL

    def found(system: System) -> Login:
        return f"127.0.0.1:{_ports[system.bootstrap][listener]}", tuple(config)

    return found

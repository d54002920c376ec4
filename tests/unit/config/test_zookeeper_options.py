"""zookeeper.connect and related options: parsing, and errors of one line."""

from __future__ import annotations

import pytest

from felice.config import BrokerConfig, ConfigError
from felice.config.zookeeper import parse_connect


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("a:2181,b:2182,c:2183/kafka/one", ("a:2181", "b:2182", "c:2183"), "/kafka/one"),
        ("a, b:1", ("a:2181", "b:1"), ""),
        ("[::1]:2182,[::2]/x/", ("[::1]:2182", "[::2]:2181"), "/x"),
        ("a/", ("a:2181",), ""),
    ],
)
def test_an_ensemble_is_hosts_and_perhaps_a_chroot(text: str, hosts: tuple[str, ...], chroot: str) -> None:
    assert parse_connect(text) == (hosts, chroot)
    config, unknown = BrokerConfig.parse({"zookeeper.connect": text})
    assert (config.zookeeper_hosts, config.zookeeper_chroot, unknown) == (hosts, chroot, [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a host is missing"),
        ("a,,b", "a host is missing"),
        ("/kafka", "a host is missing"),
        (":2181", ":2181 names no host"),
        ("a:", "a port is missing"),
        ("a:70000", "70000 is no port"),
        ("a:x", "x is no port"),
        ("::1:2181", "::1:2181 names no host"),
        ("a:2181/kafka,b:2181/kafka", "the path goes once, behind the last host"),
        ("a/b//c", "/b//c is not the path of a node"),
        ("a/b/../c", "/b/../c is not the path of a node"),
    ],
)
def test_an_invalid_connect_string_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect.*host:port") as refused:
        BrokerConfig.parse({"zookeeper.connect": text})
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ssl.keystore.location": "k.pem"}, "it has no effect unless zookeeper.ssl.client.enable=true"),
        ({"ssl.client.enable": "true", "ssl.truststore.location": "t.jks"}, "only PEM can be read.*t.jks"),
        (
            {"ssl.client.enable": "true", "ssl.keystore.location": "k.pem", "ssl.keystore.type": "PKCS12"},
            "zookeeper.ssl.keystore.type: only PEM",
        ),
        (
            {"ssl.client.enable": "true", "ssl.endpoint.identification.algorithm": "LDAPS"},
            "expected HTTPS, or nothing",
        ),
        ({"set.acl": "true"}, "set zookeeper.digest.auth"),
        ({"digest.auth": "secret"}, "expected user:password"),
        ({"session.timeout.ms": "0"}, "at least 1"),
        ({"max.in.flight.requests": "1000"}, "no more than 100"),
    ],
)
def test_inconsistent_options_are_refused(options: dict[str, str], reason: str) -> None:
    properties = {f"zookeeper.{name}": text for name, text in options.items()}
    with pytest.raises(ConfigError, match=reason) as refused:
        BrokerConfig.parse({"zookeeper.connect": "a:2181", **properties})
    assert "secret" not in str(refused.value)


def test_a_jaas_file_is_an_identity_for_access_lists() -> None:
    properties = {
        "zookeeper.connect": "a:2181",
        "zookeeper.set.acl": "true",
        "java.security.auth.login.config": "/etc/jaas.conf",
    }
    assert BrokerConfig.parse(properties)[0].zookeeper_jaas_file == "/etc/jaas.conf"
    with pytest.raises(ConfigError, match="ZooKeeper must know the broker's identity"):
        BrokerConfig.parse({**properties, "zookeeper.sasl.client": "false"})


def test_the_type_option_replaces_the_file_extension() -> None:
    properties = {
        "zookeeper.connect": "a:2181",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": "/etc/ca.crt",
        "zookeeper.ssl.truststore.type": "pem",
    }
    assert BrokerConfig.parse(properties)[0].zookeeper_ssl_truststore_location == "/etc/ca.crt"

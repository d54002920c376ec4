"""Variables of Kafka's container images: the options that they give, and those that are refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felice.config import BrokerConfig
from felice.config.image_variables import (
    BadVariable,
    option_of,
    options_set,
    read_variables,
    with_variables,
)
from felice.config.jaas import JaasModule, format_jaas, parse_jaas

JAAS = """
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required
    username="admin" password="a\\\\dmin" user_admin="a\\\\dmin" user_alice="x;y";
    org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="s";
};
inner.KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="b";
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="k" password="z"; };
"""
FILES = {
    "/etc/kafka/secrets/creds": "pass=word\n",
    "/jaas.conf": JAAS,
    "/bad.conf": "KafkaServer {",
}


def text_of(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


def properties(
    variables: Mapping[str, str],
    base: Mapping[str, str] | None = None,
    over: Mapping[str, str] | None = None,
) -> dict[str, str]:
    found = read_variables(variables, text_of)
    return with_variables(base or {}, found, over or {}, text_of)


@pytest.mark.parametrize(
    ("variable", "option"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "offsets.topic.replication.factor"),
        (
            "KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___256_SASL_JAAS_CONFIG",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config",
        ),
        ("KAFKA_CFG_NODE_ID", "node.id"),
        (
            "KAFKA_CFG_LISTENER_NAME_SASL_PLAINTEXT_PLAIN_SASL_JAAS_CONFIG",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
        ("KAFKA_CFG_LISTENER_NAME_SASL__SSL_SSL_CLIENT_AUTH", "listener.name.sasl_ssl.ssl.client.auth"),
        ("KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientCnxnSocket"),
        ("KAFKA_CFG_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientCnxnSocket"),
    ],
)
def test_the_name_of_a_variable_is_that_of_an_option(variable: str, option: str) -> None:
    assert option_of(variable) == option


def test_every_broker_option_has_a_variable() -> None:
    from felice.config import BROKER_OPTIONS

    for name in BROKER_OPTIONS:
        written = name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
        assert option_of(f"KAFKA_{written}") == name


def test_variables_override_the_file_and_the_command_line_overrides_both() -> None:
    found = properties(
        {"KAFKA_NODE_ID": "2", "KAFKA_NUM_PARTITIONS": "4"},
        {"node.id": "1", "num.partitions": "1", "broker.rack": "r"},
        {"num.partitions": "8"},
    )
    assert found == {"node.id": "2", "num.partitions": "8", "broker.rack": "r"}


def test_the_prefix_of_bitnami_has_precedence() -> None:
    for pair in ({"KAFKA_NODE_ID": "1", "KAFKA_CFG_NODE_ID": "2"}, {"KAFKA_CFG_NODE_ID": "2"}):
        assert properties(pair) == {"node.id": "2"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ""),
        (" a b ", "a b "),
        ("# no comment", "# no comment"),
        ("a=b:c", "a=b:c"),
        ("C:\\\\dir", "C:\\dir"),
        ("\\u00e9", "é"),
        ("one \\\n  two\n", "one two"),
        ("one\ntwo\n", "one\ntwo"),
        ("one\\\\\ntwo", "one\\\ntwo"),
        ('Module required user_a="b";', 'Module required user_a="b";'),
    ],
)
def test_a_value_is_read_as_in_a_file_of_properties(text: str, value: str) -> None:
    assert properties({"KAFKA_BROKER_RACK": text}) == {"broker.rack": value}


@pytest.mark.parametrize(
    ("advertised", "listeners"),
    [
        ("PLAINTEXT://broker:29092,HOST://localhost:9092", "PLAINTEXT://0.0.0.0:29092,HOST://0.0.0.0:9092"),
        ("PLAINTEXT://[::1]:9092", "PLAINTEXT://0.0.0.0:9092"),
        ("PLAINTEXT://:9092", "PLAINTEXT://0.0.0.0:9092"),
    ],
)
def test_listeners_are_derived_from_the_advertised_ones(advertised: str, listeners: str) -> None:
    variables = {"KAFKA_ADVERTISED_LISTENERS": advertised}
    assert properties(variables)["listeners"] == listeners
    assert properties(variables, {"listeners": "A://h:1"})["listeners"] == "A://h:1"
    assert properties(variables, over={"listeners": "A://h:1"})["listeners"] == "A://h:1"


def test_stores_and_passwords_are_in_the_directory_of_secrets() -> None:
    assert properties(
        {
            "KAFKA_SSL_KEYSTORE_FILENAME": "broker.p12",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "creds",
            "KAFKA_SSL_KEY_CREDENTIALS": "creds",
            "KAFKA_SSL_TRUSTSTORE_FILENAME": "trust.p12",
            "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "creds",
        }
    ) == {
        "ssl.keystore.location": "/etc/kafka/secrets/broker.p12",
        "ssl.keystore.password": "pass=word",
        "ssl.key.password": "pass=word",
        "ssl.truststore.location": "/etc/kafka/secrets/trust.p12",
        "ssl.truststore.password": "pass=word",
    }


SASL = {
    "KAFKA_LISTENERS": "CLIENTS://:9094,INNER://:9095,PLAINTEXT://:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENTS:SASL_PLAINTEXT,INNER:sasl_plaintext,PLAINTEXT:PLAINTEXT",
    "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_OPTS": "-Dother=1 -Djava.security.auth.login.config=/jaas.conf -Xmx1g",
}


def test_logins_of_listeners_come_from_the_jaas_file() -> None:
    found = properties(SASL)
    config, unknown = BrokerConfig.parse(found)
    assert unknown == []
    clients, inner = config.security_of("CLIENTS"), config.security_of("INNER")
    plain = clients.jaas("PLAIN")
    assert (
        plain is not None and plain.options["user_alice"] == "x;y" and plain.options["password"] == "a\\dmin"
    )
    scram = clients.jaas("SCRAM-SHA-256")
    assert scram is not None and scram.options["password"] == "s"
    own = inner.jaas("PLAIN")
    assert own is not None and own.options == {"user_bob": "b"} and inner.jaas("SCRAM-SHA-256") is None
    assert not any("plaintext" in name for name in found)
    assert "java.security.auth.login.config" not in found
    assert (
        properties({**SASL, "KAFKA_ZOOKEEPER_CONNECT": "z:2181"})["java.security.auth.login.config"]
        == "/jaas.conf"
    )


def test_a_listeners_own_login_has_precedence_over_the_jaas_file() -> None:
    own = {"listener.name.clients.plain.sasl.jaas.config": 'PlainLoginModule required user_c="c";'}
    found = properties(SASL, own)
    assert found["listener.name.clients.plain.sasl.jaas.config"] == next(iter(own.values()))


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"KAFKA_CLIENT_USERS": "a,b"}, "KAFKA_CLIENT_USERS is for the scripts of Bitnami's image"),
        ({"KAFKA_CERTIFICATE_PASSWORD": "secret"}, "KAFKA_CERTIFICATE_PASSWORD is for the scripts"),
        ({"KAFKA_INTER_BROKER_PASSWORD": "secret"}, "KAFKA_INTER_BROKER_PASSWORD is for the scripts"),
        (
            {"KAFKA_SSL_KEY_CREDENTIALS": "none"},
            "KAFKA_SSL_KEY_CREDENTIALS names /etc/kafka/secrets/none: No such file",
        ),
        ({"KAFKA_OPTS": "-Djava.security.auth.login.config=/none"}, "KAFKA_OPTS names /none: No such file"),
        (
            {"KAFKA_OPTS": "-Djava.security.auth.login.config=/bad.conf"},
            "KAFKA_OPTS names /bad.conf: expected",
        ),
        ({"KAFKA_BROKER_RACK": "pa\\user secret"}, "KAFKA_BROKER_RACK: malformed \\u escape"),
        ({"KAFKA_BROKER_RACK": "\udce9secret"}, "KAFKA_BROKER_RACK is not text in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_refused_without_its_value(variables: dict[str, str], reason: str) -> None:
    with pytest.raises(BadVariable) as refused:
        properties(variables)
    assert str(refused.value).startswith(reason)
    assert "secret" not in str(refused.value).replace("secrets", "") and "\n" not in str(refused.value)


def test_variables_that_name_no_option_are_told() -> None:
    found = read_variables(
        {
            "KAFKA_NUM_PARTITONS": "1",
            "KAFKA_ENABLE_KRAFT": "yes",
            "KAFKA_CLIENT_USERS": "",
            "KAFKA_HEAP_OPTS": "-Xmx1g",
            "KAFKA_PORT": "tcp://10.0.0.1:9092",
            "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
            "KAFKA_SERVICE_HOST": "10.0.0.1",
            "KAFKA_CONFLUENT_BALANCER_ENABLE": "true",
            "OTHER": "x",
        },
        text_of,
    )
    assert found.unread == (
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_NUM_PARTITONS (did you mean num.partitions?)",
    )
    assert found.properties == {"confluent.balancer.enable": "true"}


def test_only_variables_of_options_are_missed_when_none_is_read() -> None:
    names = ["KAFKA_HEAP_OPTS", "KAFKA_NODE_ID", "KAFKA_BOOTSTRAP_SERVERS", "KAFKA_CFG_LISTENERS", "NODE_ID"]
    assert options_set(names) == ["KAFKA_CFG_LISTENERS", "KAFKA_NODE_ID"]


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(), max_size=4))
def test_a_login_module_is_read_back_as_it_was_written(options: dict[str, str]) -> None:
    module = JaasModule("org.example.LoginModule", options)
    assert parse_jaas(format_jaas(module)) == module

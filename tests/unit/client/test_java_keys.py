"""Java's keys in properties: each has an effect, or is named as one without, or is refused with the reason."""

from __future__ import annotations

import pytest

from felice.cli.faults import Fault
from felice.cli.options import client_properties
from felice.client.error import KafkaException
from felice.client.java_keys import WITHOUT_EFFECT, convert_java_keys

CONSUMER = "org.apache.kafka.clients.consumer."
PRODUCER = "org.apache.kafka.clients.producer."


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_a_key_that_tunes_javas_clients_has_no_effect(name: str) -> None:
    assert convert_java_keys({name: "1"}) == ({}, [name])


def test_tools_tell_what_has_no_effect_and_refuse_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert client_properties(None, ["max.poll.records=1", "acks=all"]) == {"acks": "all"}
    assert "'max.poll.records' is accepted, but has no effect" in capsys.readouterr().err
    with pytest.raises(Fault, match=r"configuration property 'sasl.login.class': names a Java class"):
        client_properties(None, ["sasl.login.class=org.example.Login"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"compression.type": "gzip", "compression.gzip.level": "9"},
            {"compression.type": "gzip", "compression.level": "9"},
        ),
        ({"compression.type": "zstd", "compression.gzip.level": "9"}, {"compression.type": "zstd"}),
        ({"compression.lz4.level": "9"}, {}),
        ({"partitioner.class": f"{PRODUCER}RoundRobinPartitioner"}, {"partitioner": "round_robin"}),
        ({"partitioner.class": ""}, {}),
        ({"partitioner.ignore.keys": "true"}, {"partitioner": "sticky"}),
        ({"partitioner.ignore.keys": "false"}, {}),
        (
            {"partition.assignment.strategy": f"{CONSUMER}CooperativeStickyAssignor"},
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        (
            {
                "partition.assignment.strategy": f"{CONSUMER}RangeAssignor, {CONSUMER}CooperativeStickyAssignor"
            },
            {"partition.assignment.strategy": "range"},
        ),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"connections.max.idle.ms": "5"}, {"connections.max.idle.ms": "5"}),
        ({"auto.offset.reset": "none"}, {"auto.offset.reset": "none"}),
        ({"interceptor.classes": ""}, {}),
        ({"transaction.two.phase.commit.enable": "false"}, {}),
        ({"no.such.key": "1"}, {"no.such.key": "1"}),
    ],
)
def test_a_key_with_an_effect_becomes_a_setting_of_the_client(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert convert_java_keys(given) == (expected, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto.offset.reset", "by_duration:PT1H"),
        ("interceptor.classes", "org.example.Audit"),
        ("partitioner.class", "org.example.ByRegion"),
        ("sasl.login.class", "org.example.Login"),
        ("bootstrap.controllers", "h:1"),
        ("transaction.two.phase.commit.enable", "true"),
    ],
)
def test_a_key_that_cannot_be_followed_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(KafkaException, match=f"configuration property '{name}': "):
        convert_java_keys({name: value})


def test_keys_of_another_mechanism_have_no_effect() -> None:
    url = {"sasl.oauthbearer.token.endpoint.url": "https://h"}
    assert convert_java_keys({"sasl.mechanism": "PLAIN", **url}) == ({"sasl.mechanism": "PLAIN"}, [*url])
    # The client itself refuses it where it would matter.
    oauth = {"sasl.mechanism": "oauthbearer", **url}
    assert convert_java_keys(oauth) == (oauth, [])

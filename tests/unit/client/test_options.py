import pytest

from felice.client.error import KafkaError, KafkaException
from felice.client.options import KEYS, parse_addresses, parse_settings

BASE = {"bootstrap.servers": "localhost:9092"}


def refused(kind: str, **keys: object) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        parse_settings(kind, {**BASE, **{name.replace("_", "."): value for name, value in keys.items()}})
    error = caught.value.args[0]
    assert error.code() == KafkaError._INVALID_ARG
    return error


def test_unknown_key_is_refused_by_name_with_the_nearest_known_one() -> None:
    text = refused("p", lingerr_ms=5).str()
    assert '"lingerr.ms"' in text and "'linger.ms'" in text


def test_what_this_client_cannot_do_yet_is_refused_as_such() -> None:
    for name in ("sasl_mechanism", "ssl_ca_location"):
        assert "not supported by this client" in refused("p", **{name: "x"}).str()


def test_key_of_the_other_client_is_refused_and_says_whose_it_is() -> None:
    assert "belongs to the consumer" in refused("p", group_id="g").str()
    assert "belongs to the producer" in refused("c", linger_ms=1).str()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("acks", "2"),
        ("linger.ms", "soon"),
        ("compression.type", "rar"),
        ("enable.idempotence", "perhaps"),
        ("batch.size", 0),
        ("partitioner", "astrology"),
        ("security.protocol", "SSL"),
        ("delivery.timeout.ms", True),
        ("on_delivery", "not a function"),
    ],
)
def test_impossible_value_is_refused_with_key_and_value(key: str, value: object) -> None:
    with pytest.raises(KafkaException) as caught:
        parse_settings("p", {**BASE, key: value})
    assert f'"{key}"' in str(caught.value) and repr(value) in str(caught.value)


def test_names_of_java_and_librdkafka_mean_the_same() -> None:
    java = parse_settings("p", {**BASE, "linger.ms": "7", "max.in.flight.requests.per.connection": 2})
    other = parse_settings("p", {**BASE, "queue.buffering.max.ms": 7, "max.in.flight": "2"})
    assert java == other


def test_every_default_is_a_value_its_own_parser_accepts() -> None:
    for key in KEYS:
        if key.default is not None and key.name not in ("acks", "compression.type", "isolation.level"):
            assert key.parse(key.default) == key.default, key.name


def test_idempotence_gives_way_to_explicit_acks_but_not_when_it_was_asked_for() -> None:
    assert parse_settings("p", BASE)["enable.idempotence"]
    assert not parse_settings("p", {**BASE, "acks": 1})["enable.idempotence"]
    assert "acks" in refused("p", enable_idempotence=True, acks="1").str()


def test_short_session_shortens_the_default_heartbeat() -> None:
    assert parse_settings("c", {**BASE, "session.timeout.ms": 3000})["heartbeat.interval.ms"] == 1000
    assert "heartbeat.interval.ms" in refused("c", session_timeout_ms=3000, heartbeat_interval_ms=3000).str()


def test_eager_and_cooperative_assignors_do_not_mix() -> None:
    assert (
        "cooperative-sticky" in refused("c", partition_assignment_strategy="range,cooperative-sticky").str()
    )


def test_addresses() -> None:
    assert parse_addresses("a:1, PLAINTEXT://b:2,c,[::1]:3") == [("a", 1), ("b", 2), ("c", 9092), ("::1", 3)]
    for wrong in ("a:b", "a:0", "a:70000", ",", ""):
        with pytest.raises(KafkaException):
            parse_addresses(wrong)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(KafkaException, match="bootstrap.servers"):
        parse_settings("a", {})


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ("expected a name", {"transactional_id": ""}),
        ('needs "transactional.id"', {"transaction_timeout_ms": 1000}),
        ('"enable.idempotence" must be true', {"transactional_id": "t", "enable_idempotence": False}),
        ('"acks" must be "all"', {"transactional_id": "t", "acks": 1}),
        (
            "from 1 to",
            {"transactional_id": "t", "transaction_timeout_ms": 1000, "delivery_timeout_ms": 1001},
        ),
        ("from 1 to", {"transactional_id": "t", "delivery_timeout_ms": 0}),
        ("belongs to the producer", {"transactional_id": "t"}),
    ],
)
def test_what_a_transactional_producer_cannot_be_is_refused(said: str, keys: dict[str, object]) -> None:
    assert said in refused("c" if "belongs" in said else "p", **keys).str()


def test_records_are_not_delivered_behind_the_end_of_their_transaction() -> None:
    keys = {"bootstrap.servers": "h", "transactional.id": "t", "transaction.timeout.ms": 5000}
    assert parse_settings("p", keys)["delivery.timeout.ms"] == 5000

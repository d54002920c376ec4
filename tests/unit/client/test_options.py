import logging

import pytest

from felice.client.error import KafkaError, KafkaException
from felice.client.keys import keys_of
from felice.client.options import (
    KEYS,
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    parse_addresses,
)
from felice.client.security import SecuritySettings

BASE = {"bootstrap.servers": "localhost:9092"}
KINDS: dict[str, type[ClientSettings]] = {"p": ProducerSettings, "c": ConsumerSettings, "a": AdminSettings}


def refused(kind: str, **keys: object) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        KINDS[kind].parse({**BASE, **{name.replace("_", "."): value for name, value in keys.items()}})
    error = caught.value.args[0]
    assert error.code() == KafkaError._INVALID_ARG
    return error


def test_error_for_an_unknown_key_suggests_the_nearest_known_key() -> None:
    text = refused("p", lingerr_ms=5).str()
    assert '"lingerr.ms"' in text and "'linger.ms'" in text


def test_unsupported_feature_is_refused_as_unsupported() -> None:
    for name in ("sasl_kerberos_service_name", "ssl_crl_location"):
        assert "not supported by this client" in refused("p", **{name: "x"}).str()


def accepted(kind: str, **keys: object) -> ClientSettings:
    return KINDS[kind].parse({**BASE, **{name.replace("_", "."): value for name, value in keys.items()}})


def test_one_dict_serves_both_kinds_of_clients(caplog: pytest.LogCaptureFixture) -> None:
    both = {**BASE, "group.id": "g", "auto.offset.reset": "earliest", "acks": "all", "linger.ms": 1}
    assert ProducerSettings.parse(both).linger_ms == 1
    assert ConsumerSettings.parse(both).group_id == "g"
    assert caplog.messages == [
        "configuration without effect in this producer: auto.offset.reset, group.id",
        "configuration without effect in this consumer: acks, linger.ms",
    ]


def test_values_of_the_other_kind_of_client_are_checked_too() -> None:
    assert "expected" in refused("p", auto_offset_reset="never").str()


def test_keys_that_tune_only_librdkafka_are_accepted_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = {"broker.address.ttl": 1000, "log.connection.close": False, "broker.address.family": "v4"}
    assert ProducerSettings.parse({**BASE, **keys}).without_effect == tuple(sorted(keys))
    assert len(caplog.messages) == 1 and all(key in caplog.messages[0] for key in keys)


@pytest.mark.parametrize("registered", [True, False])
def test_debug_lines_need_a_context_even_where_the_logger_is_at_debug(registered: bool) -> None:
    base = logging.getLogger("verbose") if registered else logging.Logger("verbose")
    base.setLevel(logging.DEBUG)
    heard: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    base.addHandler(Handler())
    quiet = accepted("c", logger=base)
    quiet.log("protocol").debug("not this")
    quiet.log("protocol").warning("but this")
    accepted("c", logger=base, debug="protocol").log("protocol").debug("and this")
    assert heard == ["but this", "and this"]


def test_values_that_match_this_client_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"broker.address.family": "any", "api.version.request": "true", "queuing.strategy": "fifo"}
    assert ProducerSettings.parse({**BASE, **keys}).without_effect == ()
    assert caplog.messages == []


def test_warning_goes_to_the_logger_of_the_application() -> None:
    heard: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logger = logging.Logger("mine")
    logger.addHandler(Handler())
    accepted("c", acks="1", logger=logger)
    assert heard == ["configuration without effect in this consumer: acks"]


def test_adapter_of_a_logger_keeps_its_level() -> None:
    adapter = logging.LoggerAdapter(logging.getLogger("adapted"), {})
    adapter.setLevel(logging.WARNING)
    assert accepted("c", logger=adapter, debug="all").log("protocol") is adapter
    assert adapter.getEffectiveLevel() == logging.WARNING


def test_guarantee_that_this_client_does_not_give_is_refused() -> None:
    assert accepted("p", enable_gapless_guarantee="false").without_effect == ()
    assert "expected one of false" in refused("p", enable_gapless_guarantee="true").str()
    for name in ("topic_blacklist", "plugin_library_paths"):
        assert "not supported by this client" in refused("c", **{name: "x"}).str()


def test_nested_topic_defaults_have_lower_priority() -> None:
    settings = accepted("p", acks="all", default_topic_config={"acks": "0", "compression.type": "lz4"})
    assert (settings.acks, settings.compression_type) == (-1, 3)
    assert "expected a dict" in refused("p", default_topic_config="acks=1").str()


@pytest.mark.parametrize(("context", "name"), [("cgrp", "group"), ("msg", "sender"), ("all", "protocol")])
def test_debug_contexts_turn_on_loggers(context: str, name: str) -> None:
    base = logging.getLogger(f"application.{context}")
    base.setLevel(logging.WARNING)
    settings = accepted("c", debug=context, logger=base)
    assert settings.log(name).isEnabledFor(logging.DEBUG)
    assert "comma-separated" in refused("c", debug="everything").str()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("acks", "2"),
        ("linger.ms", "soon"),
        ("compression.type", "rar"),
        ("enable.idempotence", "perhaps"),
        ("batch.size", 0),
        ("partitioner", "astrology"),
        ("security.protocol", "TLS"),
        ("delivery.timeout.ms", True),
        ("on_delivery", "not a function"),
    ],
)
def test_impossible_value_is_refused_with_key_and_value(key: str, value: object) -> None:
    with pytest.raises(KafkaException) as caught:
        ProducerSettings.parse({**BASE, key: value})
    assert f'"{key}"' in str(caught.value) and repr(value) in str(caught.value)


def test_names_of_java_and_librdkafka_mean_the_same() -> None:
    java = ProducerSettings.parse({**BASE, "linger.ms": "7", "max.in.flight.requests.per.connection": 2})
    other = ProducerSettings.parse({**BASE, "queue.buffering.max.ms": 7, "max.in.flight": "2"})
    assert java == other


@pytest.mark.parametrize("kind", KINDS)
def test_settings_have_a_field_for_every_key_with_effect(kind: str) -> None:
    declared = {key for room in (KINDS[kind], SecuritySettings) for key in keys_of(room)}
    assert {key for key in KEYS if kind in key.clients} <= declared


def test_the_keys_of_tls_and_sasl_are_a_room_of_their_own() -> None:
    found = AdminSettings.parse({**BASE, "security.protocol": "plaintext", "sasl.mechanisms": "plain"})
    assert found.tls_and_sasl == SecuritySettings("PLAINTEXT", "PLAIN")


def test_only_producers_create_topics_unless_told_otherwise() -> None:
    by_default = {kind: found.parse(BASE).allow_auto_create_topics for kind, found in KINDS.items()}
    assert by_default == {"p": True, "c": False, "a": False}
    assert not ProducerSettings.parse({**BASE, "allow.auto.create.topics": False}).allow_auto_create_topics
    assert not AdminSettings.parse({**BASE, "allow.auto.create.topics": True}).allow_auto_create_topics


def test_every_default_is_a_value_its_own_parser_accepts() -> None:
    for key in KEYS:
        if key.default is not None and key.name not in ("acks", "compression.type", "isolation.level"):
            assert key.parse(key.default) == key.default, key.name


def test_default_idempotence_yields_to_explicit_acks_but_explicit_idempotence_does_not() -> None:
    assert ProducerSettings.parse(BASE).enable_idempotence
    assert not ProducerSettings.parse({**BASE, "acks": 1}).enable_idempotence
    assert "acks" in refused("p", enable_idempotence=True, acks="1").str()


def test_short_session_shortens_the_default_heartbeat() -> None:
    assert ConsumerSettings.parse({**BASE, "session.timeout.ms": 3000}).heartbeat_interval_ms == 1000
    assert "heartbeat.interval.ms" in refused("c", session_timeout_ms=3000, heartbeat_interval_ms=3000).str()


def test_eager_and_cooperative_assignors_do_not_mix() -> None:
    assert (
        "cooperative-sticky" in refused("c", partition_assignment_strategy="range,cooperative-sticky").str()
    )


def test_addresses() -> None:
    assert parse_addresses("a:1, PLAINTEXT://b:2,c,[::1]:3") == [("a", 1), ("b", 2), ("c", 9092), ("::1", 3)]
    assert parse_addresses("[::1],::1,PLAINTEXT://[fe80::1],fe80::1%eth0") == [
        ("::1", 9092),
        ("::1", 9092),
        ("fe80::1", 9092),
        ("fe80::1%eth0", 9092),
    ]
    for wrong in (
        "a:b",
        "a:0",
        "a:70000",
        "a:²",
        ":9092",
        "[::1]:",
        ",",
        "",
        "localhost:1:2",
        "1:2:3",
        "::1:10092",
        "[a:b]:1",
        "[::1",
        "::1]:1",
        "[[::1]]:1",
        "[a]:1",
        "a:" + "9" * 5000,
    ):
        with pytest.raises(KafkaException):
            parse_addresses(wrong)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("batch_size", "1MB", "expected a whole number from 1 to 2147483647"),
        ("linger_ms", "soon", "expected a number from 0 to 900000"),
        ("linger_ms", "nan", "expected a number from 0 to 900000"),
        ("broker_address_ttl", "1s", "expected a whole number"),
        ("broker_address_ttl", True, "expected a whole number"),
    ],
)
def test_a_wrong_number_is_refused_with_what_was_expected(key: str, value: object, said: str) -> None:
    assert said in refused("p", **{key: value}).str()


@pytest.mark.parametrize("value", ["no", "yes", "on", "off", "", "2"])
def test_a_flag_is_true_or_false(value: str) -> None:
    assert "expected true or false" in refused("c", enable_auto_commit=value).str()


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("session.timeout.ms", "max.poll.interval.ms"), {"max_poll_interval_ms": 20_000}),
        (("session.timeout.ms", "max.poll.interval.ms"), {"session_timeout_ms": 400_000}),
        (("message.max.bytes", "fetch.max.bytes"), {"fetch_max_bytes": 100, "message_max_bytes": 1000}),
        (("receive.message.max.bytes", "fetch.max.bytes"), {"receive_message_max_bytes": 1000}),
        (("reconnect.backoff.ms", "reconnect.backoff.max.ms"), {"reconnect_backoff_max_ms": 10}),
    ],
)
def test_contradictory_settings_of_a_consumer_are_refused(
    names: tuple[str, str], keys: dict[str, object]
) -> None:
    text = refused("c", group_id="g", **keys).str()
    assert all(f'"{name}"' in text for name in names), text


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(KafkaException, match="bootstrap.servers"):
        AdminSettings.parse({})


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ("expected a name", {"transactional_id": ""}),
        ('needs "transactional.id"', {"transaction_timeout_ms": 1000}),
        (
            '"delivery.timeout.ms" must be at least "linger.ms" + "request.timeout.ms"',
            {"delivery_timeout_ms": 1000, "request_timeout_ms": 1000},
        ),
        ('"delivery.timeout.ms" must be above "linger.ms"', {"message_timeout_ms": 9, "linger_ms": 9}),
        (
            '"queuing.strategy" must be "fifo" when "enable.idempotence"',
            {"queuing_strategy": "lifo", "enable_idempotence": True},
        ),
        (
            '"socket.timeout.ms" must be at most "transaction.timeout.ms"',
            {"transactional_id": "t", "transaction_timeout_ms": 1000, "socket_timeout_ms": 1101},
        ),
        (
            'must not be above "reconnect.backoff.max.ms"',
            {"reconnect_backoff_ms": 200, "reconnect_backoff_max_ms": 100},
        ),
        ('"enable.idempotence" must be true', {"transactional_id": "t", "enable_idempotence": False}),
        ('"acks" must be "all"', {"transactional_id": "t", "acks": 1}),
        (
            "from 1 to",
            {"transactional_id": "t", "transaction_timeout_ms": 1000, "delivery_timeout_ms": 1001},
        ),
        ("from 1 to", {"transactional_id": "t", "delivery_timeout_ms": 0}),
    ],
)
def test_invalid_settings_of_a_transactional_producer_are_refused(said: str, keys: dict[str, object]) -> None:
    assert said in refused("p", **keys).str()


def test_delivery_timeout_does_not_exceed_the_transaction_timeout() -> None:
    keys = {"bootstrap.servers": "h", "transactional.id": "t", "transaction.timeout.ms": 5000}
    assert ProducerSettings.parse(keys).delivery_timeout_ms == 5000


@pytest.mark.parametrize(
    ("kind", "key", "value", "parsed"),
    [
        *(("p", "enable.idempotence", text, True) for text in ("true", " TRUE ", "1", "t", True)),
        *(("p", "enable.idempotence", text, False) for text in ("false", "False", "0", "f", False)),
        ("p", "acks", "All", -1),
        ("p", "acks", 1, 1),
        ("p", "compression.type", "ZSTD", 4),
        ("p", "partitioner", "murmur2", "murmur2"),
        ("c", "auto.offset.reset", "smallest", "earliest"),
        ("c", "auto.offset.reset", "End", "latest"),
        ("c", "auto.offset.reset", "none", "error"),
        ("c", "isolation.level", "read_committed", 1),
        ("c", "isolation.level", "read_uncommitted", 0),
        ("c", "partition.assignment.strategy", " Range ,roundrobin", ("range", "roundrobin")),
        ("c", "partition.assignment.strategy", ["sticky"], ("sticky",)),
        ("c", "debug", " cgrp , fetch ", "cgrp,fetch"),
        ("c", "client.rack", "r", "r"),
        ("p", "linger.ms", 0, 0),
        ("p", "linger.ms", "900000", 900_000),
    ],
)
def test_values_and_what_they_mean(kind: str, key: str, value: object, parsed: object) -> None:
    assert getattr(KINDS[kind].parse({**BASE, key: value}), key.replace(".", "_")) == parsed


@pytest.mark.parametrize(
    ("kind", "key", "value", "reason"),
    [
        ("p", "enable.idempotence", "2", "expected true or false"),
        ("p", "acks", "most", "expected one of -1, all, 0, 1"),
        ("p", "transactional.id", 5, "expected a string"),
        ("p", "transactional.id", "", "expected a name"),
        ("p", "partitioner", "Murmur2", "expected a callable or one of murmur2_random, murmur2, "),
        ("c", "partition.assignment.strategy", [], "expected a comma-separated list of range, roundrobin"),
        ("c", "partition.assignment.strategy", "range,odd", "expected a comma-separated list of range"),
        ("c", "auto.offset.reset", "soon", "expected one of earliest, smallest"),
        ("c", "security.protocol", "KERBEROS", "expected one of "),
        ("c", "error_cb", 5, "expected a callable"),
        ("c", "session.timeout.ms", 0, ""),
        ("p", "linger.ms", -1, ""),
        ("p", "linger.ms", 900_001, ""),
    ],
)
def test_values_that_are_refused_and_why(kind: str, key: str, value: object, reason: str) -> None:
    with pytest.raises(KafkaException) as caught:
        KINDS[kind].parse({**BASE, key: value})
    text = caught.value.error.str()
    assert caught.value.code == KafkaError._INVALID_ARG
    assert f'Invalid value {value!r} for configuration property "{key}": {reason}' in text


@pytest.mark.parametrize(
    ("broken", "keys"),
    [
        ('"acks" must be "all"', {"acks": 1}),
        (
            '"max.in.flight.requests.per.connection" must be at most 5',
            {"max.in.flight.requests.per.connection": 6},
        ),
        ('"retries" must be above 0', {"retries": 0}),
    ],
)
def test_what_idempotence_needs(broken: str, keys: dict[str, object]) -> None:
    assert ProducerSettings.parse({**BASE, **keys}).enable_idempotence is False
    with pytest.raises(KafkaException) as caught:
        ProducerSettings.parse({**BASE, **keys, "enable.idempotence": True})
    assert f'{broken} when "enable.idempotence" is true' in caught.value.error.str()
    with pytest.raises(KafkaException):
        ProducerSettings.parse({**BASE, **keys, "transactional.id": "x"})
    allowed = {"max.in.flight.requests.per.connection": 5, "retries": 1, "acks": "all"}
    assert ProducerSettings.parse({**BASE, **allowed, "enable.idempotence": True}).enable_idempotence


def test_an_unset_value_is_the_default() -> None:
    assert ProducerSettings.parse({**BASE, "acks": None}).acks == ProducerSettings.parse(BASE).acks


@pytest.mark.parametrize("given", [["a"], "acks=1"])
def test_nested_topic_defaults_are_a_mapping(given: object) -> None:
    with pytest.raises(KafkaException, match=r'"default.topic.config": expected a dict'):
        ProducerSettings.parse({**BASE, "default.topic.config": given})


def test_a_heartbeat_is_a_third_of_a_short_session() -> None:
    for session, heartbeat in ((3001, 3000), (3000, 1000), (2, 1)):
        found = ConsumerSettings.parse({**BASE, "group.id": "g", "session.timeout.ms": session})
        assert found.heartbeat_interval_ms == heartbeat
    given = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 2999}
    assert ConsumerSettings.parse({**BASE, **given}).heartbeat_interval_ms == 2999

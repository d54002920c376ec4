"""Options: defaults, synonyms, and bad values that are refused with the reason."""

import sys
from pathlib import Path

import pytest

from felice.config import (
    BROKER_OPTIONS,
    TOPIC_OPTIONS,
    BrokerConfig,
    ConfigError,
    Kind,
    Listener,
    TopicConfig,
    directory_text,
    find_option,
)
from felice.config.client_metrics import CLIENT_METRICS_OPTIONS
from felice.config.kafka_only import KAFKA_ONLY, is_kafkas, nearest
from felice.config.option import Items, Option
from felice.config.without_effect import FIXED, SETTABLE

EVERY_OPTION = {**TOPIC_OPTIONS, **CLIENT_METRICS_OPTIONS, **SETTABLE, **BROKER_OPTIONS}


def broker(**properties: str) -> BrokerConfig:
    return BrokerConfig.parse({name.replace("_", "."): text for name, text in properties.items()})[0]


def test_unknown_names_are_reported_and_known_ones_kept() -> None:
    config, unknown = BrokerConfig.parse({"num.partitions": "3", "no.such.option": "1"})
    assert config.num_partitions == 3
    assert unknown == ["no.such.option"]


def test_broker_id_stands_for_node_id_unless_both_are_set() -> None:
    assert broker(broker_id="7").node_id == 7
    assert broker(broker_id="7", node_id="8").node_id == 8


def test_log_dir_stands_for_log_dirs() -> None:
    assert broker(log_dir="/a").log_dirs == ("/a",)
    assert broker(log_dirs="/a, /b", log_dir="/c").log_dirs == ("/a", "/b")


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert TopicConfig.parse({}, BrokerConfig.parse(properties)[0]).retention_ms == retention_ms


def test_a_topics_own_value_wins_over_the_brokers() -> None:
    config = broker(log_segment_bytes="2097152")
    assert TopicConfig.parse({}, config).segment_bytes == 2_097_152
    assert TopicConfig.parse({"segment.bytes": "1048576"}, config).segment_bytes == 1_048_576


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("segment.bytes", "100", "at least 1048576"),
        ("cleanup.policy", "shred", "String must be one of: delete, compact"),
        ("compression.type", "brotli", "String must be one of"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("preallocate", "true", "only false is possible"),
        ("leader.replication.throttled.replicas", "0:1,x", "expected partition:broker"),
        ("no.such.option", "1", "Unknown topic config name"),
    ],
)
def test_a_topic_refuses_a_bad_value_with_the_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TopicConfig.parse({name: text})
    assert reason in str(refused.value)
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        # Otherwise the topics of the coordinators could never be created.
        ({"offsets.topic.segment.bytes": "1048575"}, "at least 1048576"),
        ({"transaction.state.log.segment.bytes": "1048575"}, "at least 1048576"),
        ({"listeners": "PLAINTEXT:9092"}, "expected NAME://host:port"),
        ({"listeners": "SASL_SSL://:9093"}, "name the mechanisms that clients may use"),
        (
            {"listeners": "A://:1,A://:2", "listener.security.protocol.map": "A:PLAINTEXT"},
            "a name of its own",
        ),
        ({"advertised.listeners": "OTHER://h:1"}, "no listener is named OTHER"),
        ({"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "only one address"),
        ({"advertised.listeners": "PLAINTEXT://h:1,plaintext://i:2"}, "only one address"),
        ({"listeners": "PLAINTEXT://http://127.0.0.1:9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://a/b:9092"}, "expected NAME://host:port"),
        ({"listeners": "://h:9092"}, "expected NAME://host:port"),
        ({"ssl.endpoint.identification.algorithm": "HTTP"}, "must be one of"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot connect to 0.0.0.0"),
        ({"log.dirs": "/a,/a"}, "must not be duplicated"),
        ({"log.dirs": "/a,/b/../b/,/b/../b"}, "named twice"),
        # At these values no client could connect, or send any request.
        ({"max.connections": "0"}, "at least 1"),
        ({"listener.name.plaintext.max.connections": "0"}, "at least 1"),
        ({"max.connection.creation.rate": "0"}, "at least 1"),
        ({"listener.name.plaintext.max.connection.creation.rate": "0"}, "at least 1"),
        ({"max.connections.per.ip": "0"}, "an address that may connect"),
        (
            {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:0"},
            "an address that may connect",
        ),
        ({"max.connections.per.ip.overrides": "127.0.0.1:0"}, "own machine must be able to connect"),
        ({"max.connections.per.ip.overrides": "[::1]:0"}, "own machine must be able to connect"),
        ({"socket.request.max.bytes": "1023"}, "at least 1024"),
        ({"sasl.server.max.receive.size": "1"}, "at least 1024"),
        ({"listener.name.plaintext.sasl.server.max.receive.size": "1"}, "at least 1024"),
        ({"felice.request.max.elements": "1"}, "at least 100"),
        ({"felice.tls.handshake.timeout.ms": "1"}, "at least 1000"),
        ({"group.min.session.timeout.ms": "9999999"}, "above group.max.session.timeout.ms"),
        ({"log.roll.hours": "x"}, "Not a number of type INT"),
        ({"inter.broker.listener.name": "OTHER"}, "there are PLAINTEXT"),
        ({"replica.fetch.wait.max.ms": "40000"}, "above replica.lag.time.max.ms"),
        ({"replica.socket.timeout.ms": "100"}, "above replica.socket.timeout.ms"),
        ({"replica.selector.class": "Mine"}, "String must be one of"),
    ],
)
def test_a_broker_refuses_a_bad_value_with_the_reason(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.parse(properties)


def test_a_dynamic_change_lies_over_the_static_text() -> None:
    config = broker(max_connections="10", node_id="4")
    changed = config.changed({"max.connections": "20"})
    assert (changed.max_connections, changed.node_id) == (20, 4)
    assert config.max_connections == 10


def test_listeners_of_krafts_controller_are_left_out() -> None:
    config = broker(
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        **{"controller.listener.names": "CONTROLLER", "advertised.listeners": "PLAINTEXT://h:9092"},
    )
    assert [listener.name for listener in config.parsed_listeners] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("name", "is_its", "meant"),
    [
        ("process.roles", True, None),
        ("sasl.kerberos.service.name", True, None),
        ("listener.name.internal.sasl.kerberos.service.name", True, None),
        ("group.share.session.timeout.ms", True, None),
        ("num.partitons", False, "num.partitions"),
        ("retention.ms", False, "log.retention.ms"),
        ("my.own.thing", False, None),
    ],
)
def test_a_typing_error_is_distinguished_from_an_option_of_kafka(
    name: str, is_its: bool, meant: str | None
) -> None:
    assert (is_kafkas(name), nearest(name)) == (is_its, meant)


def test_the_options_of_kafka_alone_are_not_options_of_felice() -> None:
    assert KAFKA_ONLY.isdisjoint(BROKER_OPTIONS)


def test_options_without_effect_are_kafkas() -> None:
    assert FIXED.keys() | SETTABLE.keys() <= KAFKA_ONLY
    assert FIXED.keys().isdisjoint(SETTABLE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (sys.float_info.max, "1.7976931348623157E308"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (-123456789012.0, "-1.23456789012E11"),
    ],
)
def test_a_double_is_printed_as_java_prints_it(value: float, text: str) -> None:
    declared = Option("x", Kind.DOUBLE, 0.0, "A double.")
    assert declared.format(value) == text
    assert declared.parse(text) == value


@pytest.mark.parametrize("text", ["nan", "inf", "1_0.5", "0x1p3", "", "1e999", "9" * 5000])
def test_an_invalid_double_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        Option("x", Kind.DOUBLE, 0.0, "A double.").parse(text)


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 5000, "9" * 20, "0" * 5000])
def test_a_number_of_many_digits_is_refused_in_a_short_message(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type LONG") as caught:
        Option("x", Kind.LONG, 0, "A number.").parse(text)
    assert len(str(caught.value)) < 400


def test_leading_zeros_are_no_fault() -> None:
    assert Option("x", Kind.INT, 0, "A number.").parse("+0000000000000000000000012") == 12


def test_a_listener_prints_as_it_is_written() -> None:
    assert str(Listener.parse("PLAINTEXT://[::1]:9092", "listeners")) == "PLAINTEXT://[::1]:9092"
    assert Listener.parse("internal://h:1", "listeners") == Listener("INTERNAL", "h", 1)


@pytest.mark.parametrize(
    "declared", [*TOPIC_OPTIONS.values(), *BROKER_OPTIONS.values()], ids=lambda o: o.name
)
def test_every_default_is_its_own_text(declared) -> None:  # type: ignore[no-untyped-def]
    assert declared.doc
    text = declared.format(declared.default)
    if text is not None and declared.kind is not Kind.PASSWORD:
        assert declared.parse(text) == declared.default


@pytest.mark.parametrize(
    ("name", "text"), [("log.roll.hours", "0"), ("log.retention.hours", "-2"), ("log.retention.ms", "1_000")]
)
def test_a_broker_default_for_topics_keeps_the_topics_bounds_in_every_unit(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.parse({name: text})


def test_every_cleaner_thread_gets_a_mebibyte_of_offset_map() -> None:
    size = {"log.cleaner.dedupe.buffer.size": str(2 * 1024 * 1024)}
    BrokerConfig.parse({**size, "log.cleaner.threads": "2"})
    with pytest.raises(ConfigError, match="1 MiB for each of the 3"):
        BrokerConfig.parse({**size, "log.cleaner.threads": "3"})


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"authorizer.class.name": "com.example.Own"}, "is known"),
        (
            {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "admin"},
            "User:name",
        ),
        ({"super.users": "User:a,b;:c"}, "User:name"),
        ({"super.users": "User:"}, "User:name"),
        ({"super.users": "user:admin"}, "User:name"),
        ({"super.users": "User:admin"}, "without authorizer.class.name every user may do everything"),
    ],
)
def test_an_authorizer_that_cannot_be_had_is_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.parse(properties)


def test_super_users_are_separated_by_semicolons() -> None:
    """A name may contain commas: that of a certificate does."""
    authorizer = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    config, _ = BrokerConfig.parse({**authorizer, "super.users": "User:CN=a,O=b; User:admin;"})
    assert config.super_user_names == {"User:CN=a,O=b", "User:admin"}


def test_relative_paths_begin_where_the_process_was_when_it_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    config, _ = BrokerConfig.parse({"log.dirs": "data,/var/data"})
    default, _ = BrokerConfig.parse({})
    monkeypatch.chdir(second)
    assert config.log_directories == [first / "data", Path("/var/data")]
    assert default.log_directories == [first / "felice-data"]
    changed = config.changed({"max.connections": "7"})
    assert changed.log_directories == config.log_directories
    assert changed.path_of("keys.pem") == first / "keys.pem"
    with pytest.raises(ConfigError, match="named twice"):
        BrokerConfig.parse({"log.dirs": f"data,{second}/./data"})


@pytest.mark.parametrize("name", [name for name, found in EVERY_OPTION.items() if found.kind is Kind.LIST])
@pytest.mark.parametrize("text", ["{0},", ",{0}", "{0},,{0}", ",", " , "])
def test_a_list_has_no_empty_item(name: str, text: str) -> None:
    found = EVERY_OPTION[name]
    item = found.choices[0] if found.choices else "0:1" if "replicas" in name else "10.0.0.1:2"
    given = text.format(item)
    if found.items in (Items.LOOSE, Items.TEXT):
        assert "" not in (found.parse(given) or ())
    else:
        with pytest.raises(ConfigError, match="must not be empty"):
            found.parse(given)


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners", "log.dir", "log.dirs"])
def test_a_list_that_is_needed_is_not_empty(name: str) -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        BrokerConfig.parse({name: ""})


@pytest.mark.parametrize(
    "properties",
    [
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:1"},
        {"max.connections.per.ip.overrides": "10.0.0.1:0,127.0.0.1:1,"},
        {"max.connections": "1", "max.connections.per.ip": "1", "max.connection.creation.rate": "1"},
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,"},
    ],
)
def test_limits_that_somebody_can_meet_are_taken(properties: dict[str, str]) -> None:
    BrokerConfig.parse(properties)


def test_a_directory_with_a_comma_is_not_two_directories() -> None:
    assert directory_text(Path("/a/b")) == "/a/b"
    with pytest.raises(ConfigError, match="no comma"):
        directory_text(Path("/a,b/c"))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ssl.endpoint.identification.algorithm", "HTTPS", "https"),
        ("ssl.keystore.type", "pkcs12", "PKCS12"),
        ("ssl.truststore.type", "jks", "JKS"),
        ("listener.name.plaintext.ssl.endpoint.identification.algorithm", "Https", "https"),
    ],
)
def test_the_case_of_a_choice_counts_no_more_than_in_java(name: str, text: str, value: str) -> None:
    BrokerConfig.parse({name: text})
    option = find_option(name)
    assert option is not None
    assert option.parse(text) == value


_TYPED = [
    (" 100000 ", Kind.LONG, "100000"),
    ("+007", Kind.INT, "7"),
    ("\t5\n", Kind.SHORT, "5"),
    (" TRUE", Kind.BOOLEAN, "true"),
    ("False ", Kind.BOOLEAN, "false"),
    ("1", Kind.DOUBLE, "1.0"),
    (" .5f", Kind.DOUBLE, "0.5"),
    ("1e-1", Kind.DOUBLE, "0.1"),
    ("25000000", Kind.DOUBLE, "2.5E7"),
    (" a , b,c ", Kind.LIST, "a,b,c"),
    ("", Kind.LIST, ""),
    (" a b ", Kind.STRING, "a b"),
    (" x.Y ", Kind.CLASS, "x.Y"),
    (" p ", Kind.PASSWORD, "p"),
    (" ? ", Kind.UNKNOWN, " ? "),
    (" many ", Kind.INT, " many "),
    ("a,,b", Kind.LIST, "a,,b"),
]


@pytest.mark.parametrize(("text", "kind", "shown"), _TYPED)
def test_a_value_has_one_spelling(text: str, kind: Kind, shown: str) -> None:
    declared = Option("x", kind, None, "")
    assert declared.canonical(text) == shown
    assert declared.canonical(shown) == shown


@pytest.mark.parametrize("name", sorted(EVERY_OPTION))
def test_the_default_of_every_option_with_spaces_around_it_keeps_its_spelling(name: str) -> None:
    declared = EVERY_OPTION[name]
    if (text := declared.format(declared.default)) is not None:
        assert declared.canonical(f" {text.replace(',', ' , ')} ") == text


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_only_a_topic_may_keep_nothing(unit: str) -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        BrokerConfig.parse({f"log.retention.{unit}": "0"})
    assert BrokerConfig.parse({f"log.retention.{unit}": "-1"})[0].topic_defaults()["retention_ms"] == -1
    assert TopicConfig.parse({"retention.ms": "0"}).retention_ms == 0


def test_a_file_is_remembered_in_canonical_spelling() -> None:
    config, _ = BrokerConfig.parse(
        {
            "log.cleanup.policy": "delete, compact",
            "log.retention.ms": " 100000 ",
            "unclean.leader.election.enable": "True",
            "listener.name.plaintext.max.connections": " +7",
        }
    )
    assert config.originals == {
        "log.cleanup.policy": "delete,compact",
        "log.retention.ms": "100000",
        "unclean.leader.election.enable": "true",
        "listener.name.plaintext.max.connections": "7",
    }
    assert config.changed({"max.connections": " 9"}).originals["max.connections"] == "9"

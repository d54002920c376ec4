"""References to values in the environment and in files: replaced, or refused, and never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from felice.config import BrokerConfig, ConfigError
from felice.config.broker_options import PROVIDERS
from felice.config.references import has_reference, resolve
from felice.env.variables import SystemSources

PACKAGE = "org.apache.kafka.common.config.provider."
ALL = {
    PROVIDERS: "env,file,directory",
    "config.providers.env.class": f"{PACKAGE}EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}FileConfigProvider",
    "config.providers.directory.class": f"{PACKAGE}DirectoryConfigProvider",
}
JAAS = "listener.name.plaintext.plain.sasl.jaas.config"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ADMIN_PW", "s3cret")
    monkeypatch.setenv("ODD_PW", "${env:ADMIN_PW}")
    monkeypatch.delenv("NOPE", raising=False)
    (tmp_path / "secrets.properties").write_text(
        "# comment\npw = a\\u0062c\nempty=\npartitions=7\nwrong=7x\n"
    )
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "pw").write_text("from a file\n")
    (tmp_path / "latin").write_bytes(b"pw=\xe9\n")
    return tmp_path


def value_of(text: str, place: Path, **parameters: str) -> str:
    properties = {
        **ALL,
        **{f"config.providers.{name}": value for name, value in parameters.items()},
        "broker.rack": text.replace("@", str(place)),
    }
    return resolve(properties, SystemSources(), lambda name: False).properties["broker.rack"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:ADMIN_PW}", "s3cret"),
        ("<${env:ADMIN_PW}|${file:@/secrets.properties:pw}>", "<s3cret|abc>"),
        ("${file:@/secrets.properties:empty}", ""),
        ("${file:@/directory/../secrets.properties:pw}", "abc"),
        ("${directory:@/directory:pw}", "from a file\n"),
        # Values are not searched for references.
        ("${env:ODD_PW}", "${env:ADMIN_PW}"),
        # No reference, or one to a provider that is not declared: as in Kafka.
        ("${vault:a:b}", "${vault:a:b}"),
        ("${ADMIN_PW}", "${ADMIN_PW}"),
        ("$env:ADMIN_PW", "$env:ADMIN_PW"),
    ],
)
def test_references_are_replaced(text: str, value: str, place: Path) -> None:
    assert value_of(text, place) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:NOPE}", "no variable NOPE"),
        ("${env:}", "no variable"),
        ("${env:path:ADMIN_PW}", "has no path"),
        ("${file:@/secrets.properties:other}", "has no other"),
        ("${file:@/nothing:pw}", "no such file"),
        ("${file:@/latin:pw}", "not text in UTF-8"),
        ("${file:@/directory:pw}", "is a directory"),
        ("${file:pw}", "names no path"),
        ("${directory:@/directory:other}", "no such file"),
        ("${directory:@/directory:../secrets.properties}", "not the name of a file"),
        ("${directory:@/secrets.properties:pw}", "not a directory"),
    ],
)
def test_a_reference_without_a_value_is_refused(text: str, reason: str, place: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        value_of(text, place)


def test_parameters_limit_what_is_read(place: Path) -> None:
    only = {"env.param.allowlist.pattern": "ADMIN_.*"}
    assert value_of("${env:ADMIN_PW}", place, **only) == "s3cret"
    with pytest.raises(ConfigError, match="does not allow it"):
        value_of("${env:ODD_PW}", place, **only)
    # The whole name must match.
    with pytest.raises(ConfigError, match="does not allow it"):
        value_of("${env:ADMIN_PW}", place, **{"env.param.allowlist.pattern": "ADMIN"})
    below = {"file.param.allowed.paths": f"/etc,{place}/directory"}
    for path in ("@/secrets.properties", "@/directory/../secrets.properties", "@/directory2"):
        with pytest.raises(ConfigError, match="does not allow it"):
            value_of(f"${{file:{path}:pw}}", place, **below)
    assert (
        value_of("${file:@/secrets.properties:pw}", place, **{"file.param.allowed.paths": str(place)})
        == "abc"
    )


@pytest.mark.parametrize(
    ("properties", "name", "reason"),
    [
        ({PROVIDERS: "env"}, "config.providers.env.class", "Felice has the providers"),
        (
            {PROVIDERS: "vault", "config.providers.vault.class": "org.example.Vault"},
            "config.providers.vault.class",
            "Felice has the providers",
        ),
        ({PROVIDERS: "env,"}, PROVIDERS, "must not be empty"),
        (
            {**ALL, "config.providers.file.param.allowed.paths": "relative"},
            "config.providers.file.param.allowed.paths",
            "not absolute",
        ),
        (
            {**ALL, "config.providers.file.param.allowed.paths": "/no/such/place"},
            "config.providers.file.param.allowed.paths",
            "does not exist",
        ),
        (
            {**ALL, "config.providers.file.param.allowed.path": "/etc"},
            "config.providers.file.param.allowed.path",
            "only the parameter allowed.paths",
        ),
        (
            {**ALL, "config.providers.env.param.allowlist.pattern": "("},
            "config.providers.env.param.allowlist.pattern",
            "no regular expression",
        ),
    ],
)
def test_a_provider_that_cannot_be_is_refused(properties: dict[str, str], name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        BrokerConfig.parse(properties, sources=SystemSources())
    assert error.value.name == name


def test_a_broker_uses_the_values(place: Path) -> None:
    config, unknown = BrokerConfig.parse(
        {
            **ALL,
            "num.partitions": f"${{file:{place}/secrets.properties:partitions}}",
            JAAS: 'PlainLoginModule required user_admin="${env:ADMIN_PW}";',
        },
        sources=SystemSources(),
    )
    assert unknown == []
    assert config.num_partitions == 7
    assert config.originals[JAAS] == 'PlainLoginModule required user_admin="s3cret";'
    assert config.changed({"max.connections": "9"}).originals[JAAS] == config.originals[JAAS]
    assert "s3cret" not in repr(config)


def test_no_reference_becomes_a_password(place: Path) -> None:
    text = 'PlainLoginModule required user_other="0ther" user_admin="${env:ADMIN_PW}";'
    for sources in (SystemSources(), None):
        with pytest.raises(ConfigError, match="declares no provider env") as error:
            BrokerConfig.parse({JAAS: text}, sources=sources)
        assert "0ther" not in str(error.value)
    with pytest.raises(ConfigError, match="declares no provider vault"):
        BrokerConfig.parse({**ALL, JAAS: "${vault:a:b}"}, sources=SystemSources())
    # A password that looks like a reference may be kept elsewhere.
    config, _ = BrokerConfig.parse({**ALL, JAAS: "${env:ODD_PW}"}, sources=SystemSources())
    assert config.changed({"max.connections": "9"}).originals[JAAS] == "${env:ADMIN_PW}"


@pytest.mark.parametrize(
    "name", ["num.partitions", "listeners", "max.connections.per.ip.overrides", "log.retention.ms"]
)
def test_an_error_does_not_tell_the_value(name: str, place: Path) -> None:
    with pytest.raises(ConfigError) as error:
        BrokerConfig.parse({**ALL, name: "${env:ADMIN_PW}"}, sources=SystemSources())
    assert "${env:ADMIN_PW}" in str(error.value)
    assert "s3cret" not in str(error.value)
    assert json.dumps(str(error.value.value)).find("s3cret") < 0


def test_what_a_reference_is() -> None:
    assert has_reference("a${env:B}c")
    assert not has_reference("${B}")

"""SCRAM users through the admin client, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import pytest

import felice.client.admin
from felice.client.admin import AdminClient, ScramMechanism
from felice.client.error import KafkaException
from felice.server.process.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("scram")) as found:
        yield found


@pytest.mark.parametrize("module", [felice.client.admin, confluent_kafka.admin], ids=["own", "confluent"])
def test_users_are_set_described_and_deleted(broker: EmbeddedBroker, module: Any) -> None:
    """The same program for both clients."""
    admin = module.AdminClient({"bootstrap.servers": broker.bootstrap})
    sha_256, sha_512 = module.ScramMechanism.SCRAM_SHA_256, module.ScramMechanism.SCRAM_SHA_512
    set_both = [
        module.UserScramCredentialUpsertion("a", module.ScramCredentialInfo(one, 4096 + number), b"secret")
        for number, one in enumerate((sha_256, sha_512))
    ]
    few = module.UserScramCredentialUpsertion("few", module.ScramCredentialInfo(sha_256, 4000), b"secret")
    futures = admin.alter_user_scram_credentials([*set_both, few])
    assert futures["a"].result(60) is None
    with pytest.raises(Exception, match="Too few iterations"):
        futures["few"].result(60)
    found = admin.describe_user_scram_credentials().result(60)["a"]
    assert [(info.mechanism, info.iterations) for info in found.scram_credential_infos] == [
        (sha_256, 4096),
        (sha_512, 4097),
    ]
    described = admin.describe_user_scram_credentials(["a", "none"])
    assert described["a"].result(60).user == "a"
    with pytest.raises(Exception, match="does not exist"):
        described["none"].result(60)
    deletions = [module.UserScramCredentialDeletion("a", one) for one in (sha_256, sha_512)]
    assert admin.alter_user_scram_credentials(deletions)["a"].result(60) is None
    assert admin.describe_user_scram_credentials().result(60) == {}


def test_alterations_are_checked_before_they_are_sent(broker: EmbeddedBroker) -> None:
    from felice.client.admin import ScramCredentialInfo, UserScramCredentialUpsertion

    good = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wrong: list[tuple[Any, type[Exception]]] = [
        ([], ValueError),
        ("x", TypeError),
        (["x"], TypeError),
        ([UserScramCredentialUpsertion("", good, b"x")], ValueError),
        ([UserScramCredentialUpsertion("a", good, b"")], ValueError),
        (
            [UserScramCredentialUpsertion("a", ScramCredentialInfo(ScramMechanism.UNKNOWN, 1), b"x")],
            ValueError,
        ),
        (
            [UserScramCredentialUpsertion("a", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 0), b"x")],
            ValueError,
        ),
    ]
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        for alterations, error in wrong:
            with pytest.raises(error):
                admin.alter_user_scram_credentials(alterations)
        with pytest.raises(ValueError, match="named twice"):
            admin.describe_user_scram_credentials(["a", "a"])
        with pytest.raises(KafkaException, match="does not exist"):
            admin.describe_user_scram_credentials(["nobody"])["nobody"].result(60)


def test_an_alteration_shows_no_password() -> None:
    from felice.client.admin import ScramCredentialInfo, UserScramCredentialUpsertion

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    assert "secret" not in repr(UserScramCredentialUpsertion("a", info, b"secret", b"secret salt"))

"""Both sides of each mechanism, and what a server refuses."""

from __future__ import annotations

import base64

import pytest

from felice.security.principal import Principal
from felice.security.sasl.mechanism import AuthenticationFailed, Challenge, MalformedToken, Success
from felice.security.sasl.plain import PlainClient, PlainServer, users_of
from felice.security.sasl.scram import HASHES, ScramClient, ScramCredential, ScramServer, ScramUser

USERS = {"alice": "secret", "ä": "ö,="}


def test_plain_accepts_the_right_password_only() -> None:
    for user, password in USERS.items():
        success = PlainServer(USERS).respond(PlainClient(user, password).first(), 0)
        assert success == Success(Principal("User", user), b"", None)
    assert PlainClient("a", "b").respond(b"") is None


@pytest.mark.parametrize(
    "token", [b"\0alice\0wrong", b"\0bob\0secret", b"\0alice\0secre", b"\0alice\0secrets"]
)
def test_plain_tells_wrong_users_and_wrong_passwords_alike(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="^Authentication failed: Invalid username or password$"):
        PlainServer(USERS).respond(token, 0)


def test_plain_accepts_only_the_users_own_authorization_id() -> None:
    assert PlainServer(USERS).respond(b"alice\0alice\0secret", 0).principal.name == "alice"
    with pytest.raises(AuthenticationFailed, match="authorization id that is different"):
        PlainServer(USERS).respond(b"bob\0alice\0secret", 0)


@pytest.mark.parametrize("token", [b"", b"alice\0secret", b"\0alice\0secret\0", b"\0\xff\0secret"])
def test_plain_refuses_a_malformed_token(token: bytes) -> None:
    with pytest.raises(MalformedToken):
        PlainServer(USERS).respond(token, 0)


@pytest.mark.parametrize("token", [b"\0\0secret", b"\0alice\0"])
def test_plain_refuses_an_empty_user_or_password(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="not specified"):
        PlainServer({"": "secret", "alice": ""}).respond(token, 0)


def test_plain_users_are_options_of_the_login_module() -> None:
    options = {"username": "admin", "password": "x", "user_admin": "x", "user_a_b": "y"}
    assert users_of(options) == {"admin": "x", "a_b": "y"}


# SCRAM

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def users(mechanism: str, iterations: int = 4096) -> dict[str, ScramUser]:
    return {
        name: ScramUser(
            ScramCredential.of_password(mechanism, password, SALT, iterations), Principal("User", name)
        )
        for name, password in (("user", "pencil"), ("a,b=c", "ö"))
    }


def server(mechanism: str = "SCRAM-SHA-256", nonce: str = "server", iterations: int = 4096) -> ScramServer:
    tokens = {
        "token": ScramUser(
            ScramCredential.of_password(mechanism, "aG1hYw==", SALT, iterations),
            Principal("User", "owner", token_authenticated=True),
            expires_ms=77,
        )
    }
    return ScramServer(mechanism, users(mechanism, iterations).get, tokens.get, nonce)


def test_scram_exchanges_the_messages_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    end = server(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = end.respond(client.first(), 0)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == Challenge(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    proof = client.respond(challenge.token)
    assert proof == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    success = end.respond(proof, 0)
    assert success == Success(
        Principal("User", "user"), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", None
    )
    assert client.respond(success.token) is None


def logged_in(mechanism: str, user: str, password: str) -> str:
    client, end = ScramClient(mechanism, user, password, "client"), server(mechanism)
    proof = client.respond(end.respond(client.first(), 0).token)
    assert proof is not None
    success = end.respond(proof, 0)
    assert isinstance(success, Success)
    assert client.respond(success.token) is None
    return success.principal.name


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("user", "password"), [("user", "pencil"), ("a,b=c", "ö")])
def test_scram_logs_in_users_with_any_name(mechanism: str, user: str, password: str) -> None:
    assert logged_in(mechanism, user, password) == user


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_refuses_a_wrong_password(mechanism: str) -> None:
    with pytest.raises(MalformedToken):
        logged_in(mechanism, "user", "pencils")


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=nobody,r=c",  # unknown user
        b"y,,n=user,r=c",  # the client supports channel binding
        b"p=tls-unique,,n=user,r=c",
        b"n,,n=user,r=c,tokenauth=true",  # the name of a user instead of a token's id
        b"n,,n=token,r=c",  # the id of a token instead of a user's name
        b"n,,n=token,r=c,tokenauth=false",
        b"n,,n=us=er,r=c",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=,r=c",
        b"\xff",
        b"",
    ],
)
def test_scram_refuses_a_first_message(first: bytes) -> None:
    with pytest.raises(MalformedToken):
        server().respond(first, 0)


@pytest.mark.parametrize("mechanism", HASHES)
def test_scram_logs_in_the_owner_of_a_token(mechanism: str) -> None:
    client, end = ScramClient(mechanism, "token", "aG1hYw==", "client", is_token=True), server(mechanism)
    assert client.first() == b"n,,n=token,r=client,tokenauth=true"
    proof = client.respond(end.respond(client.first(), 0).token)
    assert proof is not None
    success = end.respond(proof, 0)
    assert isinstance(success, Success)
    assert (success.principal, success.expires_ms) == (
        Principal("User", "owner", token_authenticated=True),
        77,
    )


def test_scram_accepts_only_the_users_own_authorization_id() -> None:
    assert isinstance(server().respond(b"n,a=user,n=user,r=c", 0), Challenge)
    with pytest.raises(AuthenticationFailed, match="authorization id that is different"):
        server().respond(b"n,a=admin,n=user,r=c", 0)


def test_scram_ignores_unknown_extensions() -> None:
    """20: they are no error."""
    assert isinstance(server().respond(b"n,,m=x,n=user,r=c,other=1,tokenauth=false", 0), Challenge)


def test_scram_refuses_a_stored_credential_with_too_few_iterations() -> None:
    with pytest.raises(MalformedToken):
        server(iterations=4095).respond(b"n,,n=user,r=c", 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"r=cserver", b"r=cother"), (b"c=biws", b"c=eSws"), (b",p=", b",x=1,p="), (b"p=", b"p=AAAA")],
)
def test_scram_refuses_a_changed_final_message(old: bytes, new: bytes) -> None:
    client, end = ScramClient("SCRAM-SHA-256", "user", "pencil", "c"), server()
    proof = client.respond(end.respond(client.first(), 0).token)
    assert proof is not None
    assert old in proof
    with pytest.raises(MalformedToken):
        end.respond(proof.replace(old, new), 0)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=other,s=AAAA,i=4096", "another nonce"),
        (b"r=client,s=AAAA,i=4096", "another nonce"),
        (b"r=clientx,s=AAAA,i=4095", "too few"),
        (b"r=clientx,s=!,i=4096", "not base64"),
        (b"e=unknown-user", "not a SCRAM message"),
    ],
)
def test_a_scram_client_refuses_a_weak_or_foreign_challenge(challenge: bytes, reason: str) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "client")
    with pytest.raises(AuthenticationFailed, match=reason):
        client.respond(challenge)


def test_a_scram_client_refuses_a_server_without_the_credential() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "client")
    client.respond(b"r=clientx,s=AAAA,i=4096")
    with pytest.raises(AuthenticationFailed, match="does not know"):
        client.respond(b"v=" + base64.b64encode(bytes(32)))


def test_a_credential_is_stored_in_kafkas_form() -> None:
    found = users("SCRAM-SHA-256")["user"].credential
    text = found.format()
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert ScramCredential.parse(text) == found
    assert "pencil" not in text


@pytest.mark.parametrize(
    "text", ["", "salt=AA==", "salt=AA==,stored_key=AA==,server_key=!,iterations=4096", "x"]
)
def test_a_damaged_credential_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="^not a SCRAM credential$"):
        ScramCredential.parse(text)

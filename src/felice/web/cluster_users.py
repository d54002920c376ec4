"""The users of a Kafka cluster: a log in opens a connection to the cluster as that user.

Keeps true: a password is right if the cluster accepts it, with the mechanism of the configuration. Nothing is asked of
            the cluster but the log in, and the connection is closed then.
            If one bootstrap server does not answer, the next one is asked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from felice.client.error import KafkaError, KafkaException, failure
from felice.client.net.connection import connect
from felice.client.options import AdminSettings
from felice.client.security import Security
from felice.security.sasl.mechanism import ClientMechanism
from felice.security.sasl.plain import NAME as PLAIN
from felice.security.sasl.plain import PlainClient
from felice.security.sasl.scram import HASHES, ScramClient
from felice.web.login import CannotCheck, WrongLogin

_TIMEOUT_S = 5.0
_CLIENT_ID = "felice-web-login"


class ClusterUsers:
    """Users whose passwords the cluster knows. `given` is a client's configuration; its own user is not used.

    The constructor raises `KafkaException` (_INVALID_ARG) for a configuration without PLAIN or SCRAM.
    """

    def __init__(self, given: Mapping[str, object]) -> None:
        nobody = {"sasl.username": "nobody", "sasl.password": "nobody"}
        own = {name: value for name, value in given.items() if name != "sasl.jaas.config"}
        self._settings = AdminSettings.parse({**own, **nobody})
        mechanism = self._settings.tls_and_sasl.sasl_mechanism
        if not self._settings.security.has_login or mechanism not in (PLAIN, *HASHES):
            names = ", ".join((PLAIN, *HASHES))
            raise failure(
                KafkaError._INVALID_ARG,
                f'log in as a user of the cluster needs "security.protocol" with SASL, and "sasl.mechanism" {names}',
            )
        self._mechanism: str = mechanism

    async def verify(self, user: str, password: str) -> None:
        """As `Users.verify`."""
        if not user or not password or "\0" in user + password:
            raise WrongLogin("not a user and a password of SASL")
        security = Security(self._settings.security.tls, self._login(user, password))
        reasons = []
        for host, port in self._settings.bootstrap:
            try:
                connection = await connect(
                    self._settings.env.network,
                    host,
                    port,
                    client_id=_CLIENT_ID,
                    timeout_s=_TIMEOUT_S,
                    security=security,
                )
            except KafkaException as error:
                if error.code == KafkaError._AUTHENTICATION:
                    raise WrongLogin(error.error.str()) from None
                reasons.append(error.error.str())
            else:
                connection.close()
                return
        raise CannotCheck("no broker answers: " + "; ".join(reasons))

    def _login(self, user: str, password: str) -> Callable[[], ClientMechanism]:
        if self._mechanism == PLAIN:
            return lambda: PlainClient(user, password)
        return lambda: ScramClient(self._mechanism, user, password, secrets.token_hex(20))

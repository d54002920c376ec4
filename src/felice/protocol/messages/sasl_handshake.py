"""SaslHandshake (key 17): chooses the SASL mechanism of a connection.

After version 0 the tokens follow as bare frames; after version 1 in SaslAuthenticate requests.
"""

from __future__ import annotations

from felice.protocol.schema import array, int16, request, response, string


@request(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """The mechanism that the client wants."""

    mechanism: str = string()


@response(api_key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """The mechanisms that the listener offers."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)

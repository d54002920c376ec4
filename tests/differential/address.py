"""The address of a broker. One with an authorizer has a second listener, for users who log in."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.secured import log_in
from conformance.wire import DEFAULT_TIMEOUT_S, Wire


@dataclass(frozen=True, slots=True)
class Address:
    """`logins` is the listener for SASL; empty if the broker has no authorizer."""

    bootstrap: str
    logins: str = ""

    @property
    def administrator(self) -> str:
        """The user who may do everything; empty if every client may."""
        return "admin" if self.logins else ""

    def connect(self, user: str = "", timeout_s: float = DEFAULT_TIMEOUT_S) -> Wire:
        """A connection; `user` has logged in."""
        return log_in(self.logins, user, timeout_s) if user else Wire(self.bootstrap, timeout_s)

"""The calls of `AdminClient` about client metrics resources."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from felice.client.admin.futures import FutureCalls
from felice.client.admin.retries import DEFAULT_TIMEOUT_S
from felice.client.arguments import takes_lists


@takes_lists
class ClientMetricsFutures(FutureCalls):
    """Client metrics resources, as futures."""

    def list_client_metrics_resources(
        self, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[list[str]]:
        """Return the names of the client metrics resources."""
        return self._one(self._admin.list_client_metrics_resources(request_timeout))

    def describe_client_metrics(
        self, name: str, *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[dict[str, str | None]]:
        """Return the configurations of a client metrics resource; of an unknown one the defaults."""
        return self._one(self._admin.describe_client_metrics(name, request_timeout))

    def alter_client_metrics(
        self, name: str, changes: Mapping[str, str | None], *, request_timeout: float = DEFAULT_TIMEOUT_S
    ) -> Future[None]:
        """Set configurations of a client metrics resource; None resets one. A resource without any is deleted."""
        return self._one(self._admin.alter_client_metrics(name, changes, request_timeout))

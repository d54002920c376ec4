"""Options of quotas, and of the limits of connections."""

from __future__ import annotations

from dataclasses import dataclass

from felice.config.limits import LimitOptions
from felice.config.option import Kind, option


@dataclass(frozen=True, slots=True)
class QuotaOptions(LimitOptions):
    """Inherits `LimitOptions` because Python cannot combine two base classes with slots."""

    quota_window_num: int = option(
        "quota.window.num",
        Kind.INT,
        11,
        "Samples over which the bytes and the time of a client are measured against its quota.",
        minimum=1,
    )
    quota_window_size_seconds: int = option(
        "quota.window.size.seconds", Kind.INT, 1, "The length of one of these samples.", minimum=1
    )
    controller_quota_window_num: int = option(
        "controller.quota.window.num",
        Kind.INT,
        11,
        "Samples of the quota of partitions that a client creates and deletes: it may use the allowance of all of them "
        "at once.",
        minimum=1,
    )
    controller_quota_window_size_seconds: int = option(
        "controller.quota.window.size.seconds", Kind.INT, 1, "The length of one of these samples.", minimum=1
    )

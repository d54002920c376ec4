"""How many files and sockets this process may have open."""

from __future__ import annotations

import errno
import os
import resource

# More is of no use to one event loop, and programs that walk over all possible descriptors take long where the
# hard limit is a thousand times that.
_MOST_DESCRIPTORS = 1_048_576
# Kept for log files, the metadata store and what else the broker opens; of a small limit, half.
_RESERVED_DESCRIPTORS = 1024

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def raise_limit() -> int:
    """Raises the soft limit to the hard one, as far as that is useful; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft  # some systems name a hard limit that they do not allow
        return wanted
    return soft


def has_room_for_connections(some_descriptor: int) -> bool:
    """Whether a connection may be accepted and enough descriptors stay free for everything else.

    The kernel gives the lowest free number, so the number of a duplicate says how many are taken below it.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return True
    try:
        lowest_free = os.dup(some_descriptor)
    except OSError:
        return False
    os.close(lowest_free)
    return lowest_free < limit - min(_RESERVED_DESCRIPTORS, limit // 2)

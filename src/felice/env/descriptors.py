"""Limits of open files and sockets of this process."""

from __future__ import annotations

import errno
import os
import resource

# One event loop cannot use more. Where the hard limit is a thousand times higher, programs that iterate over all
# possible descriptors would take long.
_MOST_DESCRIPTORS = 1_048_576
# Reserved for log files, the metadata store and other files of the broker; half of a small limit.
_RESERVED_DESCRIPTORS = 1024

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def raise_limit() -> int:
    """Raises the soft limit towards the hard one, as far as that is useful. Returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            # Some systems report a hard limit that they do not allow.
            return soft
        return wanted
    return soft


def has_room_for_connections(some_descriptor: int) -> bool:
    """Whether enough descriptors stay free for everything else if another connection is accepted.

    The kernel assigns the lowest free number, so the number of a duplicate shows how many lower ones are in use.
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

"""Names of files and directories for what users named: queries and topics. Pure."""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
_KEPT = 100


def file_name(name: str) -> str:
    """The name itself if it can be the name of a file, with room for an ending; otherwise its letters and digits, and
    a hash: quoted names of SQL may have slashes, and those of topics may be as long as a file's.
    """
    if _PLAIN.fullmatch(name):
        return name
    letters = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_KEPT]
    return f"{letters}.{hashlib.sha256(name.encode()).hexdigest()[:32]}"

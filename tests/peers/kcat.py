"""kcat as Debian packages it."""

import os
import shutil
import subprocess

from peers.cache import PREPARE_HINT, PeerMissing, cache_dir, fetch, require

TIMEOUT_S = 300


def prepare() -> None:
    if shutil.which("kcat"):
        return
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise PeerMissing("`kcat` is not on the PATH, and installing it needs Debian's apt-get and root")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    fetch(["apt-get", "update", "-qq"], cache_dir(), quiet)
    fetch(["apt-get", "install", "-qq", "-y", "--no-install-recommends", "kcat"], cache_dir(), quiet)


def require_kcat() -> str:
    def find() -> str:
        found = shutil.which("kcat")
        if not found:
            raise PeerMissing(f"`kcat` is not on the PATH; {PREPARE_HINT}")
        return found

    return require("kcat (Debian)", find)


def run_kcat(*arguments: str, stdin: bytes = b"") -> str:
    done = subprocess.run([require_kcat(), *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"kcat {arguments} ended with {done.returncode}: {done.stderr.decode()}"
    return done.stdout.decode("utf-8", "replace")

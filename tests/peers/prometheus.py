"""Prometheus and promtool as Debian packages them, unpacked into the cache: nothing is installed."""

import shutil
from pathlib import Path

from peers.cache import PREPARE_HINT, PeerMissing, cache_dir, digest_of, fetch, is_stamped, require, stamp

_DIGEST = digest_of("prometheus from Debian, unpacked")


def _directory() -> Path:
    return cache_dir() / "prometheus"


def prepare() -> None:
    directory = _directory()
    if is_stamped(directory, _DIGEST):
        return
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise PeerMissing("Prometheus comes from Debian, and apt-get is not on the PATH")
    directory.mkdir(parents=True, exist_ok=True)
    fetch(["apt-get", "download", "prometheus"], directory)
    (package,) = directory.glob("prometheus_*.deb")
    fetch(["dpkg-deb", "-x", str(package), "unpacked"], directory)
    package.unlink()
    stamp(directory, _DIGEST)


def require_prometheus() -> Path:
    """The directory with `prometheus` and `promtool`."""

    def find() -> Path:
        found = _directory() / "unpacked" / "usr" / "bin"
        if not (found / "prometheus").exists():
            raise PeerMissing(f"Prometheus is not in {_directory()}; {PREPARE_HINT}")
        return found

    return require("Prometheus (Debian)", find)

"""kafkajs from npm, with the codecs it leaves to plugins (snappy, lz4, zstd from other packages)."""

import json
import shutil
from pathlib import Path

from peers import versions
from peers.cache import (
    PREPARE_HINT,
    PROGRAMS,
    PeerMissing,
    cache_dir,
    digest_of,
    fetch,
    is_stamped,
    require,
    stamp,
)

PACKAGE = {
    "name": "felice-peers",
    "private": True,
    "dependencies": {
        "kafkajs": versions.KAFKAJS,
        "snappyjs": versions.SNAPPYJS,
        "lz4-napi": versions.LZ4_NAPI,
        "zstd-codec": versions.ZSTD_CODEC,
    },
}


def install_dir() -> Path:
    return cache_dir() / "js"


def prepare() -> None:
    sources = sorted((PROGRAMS / "js").glob("*.js"))
    package = json.dumps(PACKAGE, indent=2)
    directory = install_dir()
    digest = digest_of(package, *sources)
    if is_stamped(directory, digest):
        return
    if not shutil.which("npm") or not shutil.which("node"):
        raise PeerMissing("Node.js (`node`, `npm`) is not on the PATH")
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / "package.json").exists() or (directory / "package.json").read_text() != package:
        (directory / "package.json").write_text(package)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        try:
            fetch(command, directory)
        except PeerMissing:
            (directory / "package.json").unlink()
            raise
    for source in sources:
        shutil.copy(source, directory / source.name)
    stamp(directory, digest)


def require_kafkajs() -> list[str]:
    """The command that runs the kafkajs peer."""

    def find() -> list[str]:
        node = shutil.which("node")
        if not node:
            raise PeerMissing("Node.js (`node`) is not on the PATH")
        if not (install_dir() / ".stamp").exists():
            raise PeerMissing(f"kafkajs was not installed; {PREPARE_HINT}")
        return [node, str(install_dir() / "peer.js")]

    return require("Node.js and npm", find)

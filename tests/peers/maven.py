"""Jars from Maven Central: what a POM names, copied into one directory.

Keeps true: the directory holds what Maven resolved for this POM and nothing of an earlier one.
"""

import shutil
from pathlib import Path

from peers.cache import PeerMissing, digest_of, fetch, is_stamped, stamp


def lone_dependency(group: str, artifact: str, version: str) -> str:
    """Without what it depends on: that is named by itself, or comes with another."""
    everything = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"<dependency>{named}{everything}</dependency>"


def prepare_jars(directory: Path, pom: str) -> None:
    digest = digest_of(pom)
    if is_stamped(directory, digest):
        return
    if not shutil.which("mvn"):
        raise PeerMissing("Maven (`mvn`) is not on the PATH")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pom.xml").write_text(pom)
    fetch(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={directory}"], directory)
    stamp(directory, digest)

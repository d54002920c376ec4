"""franz-go, through a small Go program built once with the pinned module versions."""

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


def build_dir() -> Path:
    return cache_dir() / "go"


def prepare() -> None:
    sources = sorted((PROGRAMS / "go").glob("*"))
    digest = digest_of(versions.FRANZ_GO, versions.KADM, *sources)
    directory = build_dir()
    if is_stamped(directory, digest):
        return
    if not shutil.which("go"):
        raise PeerMissing("Go (`go`) is not on the PATH")
    directory.mkdir(parents=True, exist_ok=True)
    for source in sources:
        text = source.read_text().replace("FRANZ_GO_VERSION", versions.FRANZ_GO)
        text = text.replace("KADM_VERSION", versions.KADM)
        (directory / source.name).write_text(text)
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    fetch(["go", "build", "-o", "go-peer", "."], directory, environment)
    stamp(directory, digest)


def require_go_peer() -> Path:
    def find() -> Path:
        program = build_dir() / "go-peer"
        if not (build_dir() / ".stamp").exists():
            raise PeerMissing(f"the franz-go program was not built; {PREPARE_HINT}")
        return program

    return require("Go", find)


def login_dir() -> Path:
    return cache_dir() / "go-login"


def prepare_login() -> None:
    """The program that logs in: it needs nothing of `kadm`."""
    source = PROGRAMS / "security" / "go" / "main.go"
    module = f"module felice/gologin\n\ngo 1.24\n\nrequire github.com/twmb/franz-go {versions.FRANZ_GO}\n"
    digest = digest_of(module, source)
    directory = login_dir()
    if is_stamped(directory, digest):
        return
    if not shutil.which("go"):
        raise PeerMissing("Go (`go`) is not on the PATH")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "go.mod").write_text(module)
    shutil.copy(source, directory / "main.go")
    fetch(["go", "build", "-o", "go-login", "."], directory, {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"})
    stamp(directory, digest)


def require_go_login() -> Path:
    def find() -> Path:
        if not (login_dir() / ".stamp").exists():
            raise PeerMissing(f"the franz-go program that logs in was not built; {PREPARE_HINT}")
        return login_dir() / "go-login"

    return require("Go", find)

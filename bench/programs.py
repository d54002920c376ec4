"""Programs of other projects that the bench runs, fetched when they are first needed.

Keeps true: a program is fetched once, into `.peers/bench` (or below `FELICE_PEERS`), and nothing is installed.
            What cannot be had raises `Unavailable` with the reason, and the bench goes on without it.
How:        Debian's packages are downloaded and unpacked (`apt-get download`, `dpkg-deb -x`); Go builds nats-server
            and the race's client. A program on the PATH is preferred to Debian's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import bench.systems  # noqa: F401  makes `peers` importable

NATS_SERVER = "github.com/nats-io/nats-server/v2@v2.15.2"
_REDIS = ("redis-server", "redis-tools", "libjemalloc2", "liblua5.1-0", "liblzf1", "lua-bitop", "lua-cjson")
_ERLANG = (
    *("base", "asn1", "crypto", "public-key", "mnesia", "runtime-tools", "ssl", "eldap", "ftp", "tftp"),
    *("inets", "snmp", "os-mon", "parsetools", "syntax-tools", "tools", "xmerl"),
)
_RABBITMQ = ("rabbitmq-server", *(f"erlang-{name}" for name in _ERLANG))
_TIMEOUT_S = 900


class Unavailable(Exception):
    """A system cannot be measured here. The text says why."""


def directory() -> Path:
    """Where fetched programs are."""
    from peers.cache import cache_dir

    return cache_dir() / "bench"


@cache
def redis_server() -> str:
    """The program `redis-server`."""
    return shutil.which("redis-server") or str(_debian("redis", _REDIS) / "usr/bin/redis-server")


@cache
def rabbitmq() -> Path:
    """The directory of Debian's unpacked RabbitMQ and Erlang, with a `bin/erl` that runs there."""
    root = _debian("rabbitmq", _RABBITMQ)
    erl = root / "bin" / "erl"
    if not erl.exists():
        erl.parent.mkdir(exist_ok=True)
        script = '#!/bin/sh\nROOTDIR=$(cd "$(dirname "$0")/../usr/lib/erlang" && pwd)\n'
        script += 'BINDIR=$(echo "$ROOTDIR"/erts-*/bin) EMU=beam PROGNAME=erl\n'
        script += 'export ROOTDIR BINDIR EMU PROGNAME\nexec "$BINDIR/erlexec" "$@"\n'
        erl.write_text(script)
        erl.chmod(0o755)
    return root


@cache
def nats_server() -> str:
    """The program `nats-server`, built by Go."""
    target = directory() / NATS_SERVER.rpartition("@")[2] / "nats-server"
    if not target.exists():
        _run(["go", "install", NATS_SERVER], {"GOBIN": str(target.parent), "CGO_ENABLED": "0"})
    return str(target)


@cache
def race_client() -> str:
    """The Go program that sends and receives messages through the official clients."""
    build = directory() / "race"
    sources = sorted((Path(__file__).parent / "race").iterdir())
    text = "".join(source.read_text() for source in sources)
    stamp = build / "built-from"
    if not stamp.exists() or stamp.read_text() != text:
        build.mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(source, build)
        _run(["go", "build", "-o", "race", "."], {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}, build)
        stamp.write_text(text)
    return str(build / "race")


def _debian(name: str, packages: Sequence[str]) -> Path:
    root = directory() / name
    if (root / ".complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    _run(["apt-get", "-o", "APT::Sandbox::User=root", "download", *packages], {}, root)
    for package in root.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(root)], {})
        package.unlink()
    (root / ".complete").touch()
    return root


def library_path(root: Path) -> str:
    """`LD_LIBRARY_PATH` for programs unpacked below `root`."""
    return ":".join(sorted({str(found.parent) for found in root.glob("usr/lib/**/*.so*")}))


def _run(command: Sequence[str], env: dict[str, str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"`{command[0]}` did not run: {error}") from error
    if done.returncode:
        tail = (done.stderr + done.stdout).strip().splitlines()[-1:]
        raise Unavailable(f"`{' '.join(command[:3])} …` failed: {' '.join(tail)}")

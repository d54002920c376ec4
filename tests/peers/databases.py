"""Databases on this machine: PostgreSQL and MariaDB as Debian has them, and SQLite."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

import sqlalchemy

from felice.dataclass import dataclass
from peers.apache_kafka import free_port

START_S = 60.0
KINDS = ("sqlite", "postgresql", "mariadb")


@dataclass(frozen=True, slots=True)
class Database:
    """A running database: its URL for JDBC, user, and an engine for tests."""

    kind: str
    url: str
    user: str | None
    engine: sqlalchemy.Engine
    server: Server | None = None
    port: int = 0

    @property
    def options(self) -> dict[str, str]:
        """The options of a connector."""
        found = {"connection.url": self.url}
        return found if self.user is None else {**found, "connection.user": self.user}

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for one in statements:
                connection.exec_driver_sql(one)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]


def missing(kind: str) -> str | None:
    """Why a kind of database cannot be started here; None if it can."""
    if kind == "sqlite":
        return None
    if kind == "postgresql":
        return None if _postgres() else "PostgreSQL is not installed (Debian: postgresql)"
    return None if shutil.which("mariadbd") else "MariaDB is not installed (Debian: mariadb-server)"


@contextmanager
def running_database(kind: str, directory: Path) -> Iterator[Database]:
    if kind == "sqlite":
        file = directory / "database.sqlite"
        engine = sqlalchemy.create_engine(f"sqlite:///{file}")
        try:
            yield Database(kind, f"jdbc:sqlite:{file}", None, engine)
        finally:
            engine.dispose()
        return
    # The server's own user must reach its folder, which that of a test is not for.
    place = Path(tempfile.mkdtemp(prefix=f"felice-{kind}-"))
    port = free_port()
    try:
        with _postgresql(place, port) if kind == "postgresql" else _mariadb(place, port) as found:
            yield found
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _postgres() -> Path | None:
    found = sorted(glob("/usr/lib/postgresql/*/bin/postgres"))
    return Path(found[-1]).parent if found else None


@contextmanager
def _postgresql(place: Path, port: int) -> Iterator[Database]:
    programs = _postgres()
    assert programs is not None
    prefix = _own_user("postgres", place)
    data = place / "data"
    subprocess.run(
        [*prefix, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "felice", "--no-sync"],
        check=True,
        capture_output=True,
    )
    words = ["-D", data, "-p", port, "-k", place, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
    words += ["-c", "wal_level=logical", "-c", "wal_sender_timeout=10s"]
    command = [*prefix, str(programs / "postgres"), *map(str, words)]
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://felice@127.0.0.1:{port}/postgres")
    with _server(command, place, engine) as server:
        url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
        yield Database("postgresql", url, "felice", engine, server, port)


@contextmanager
def _mariadb(place: Path, port: int) -> Iterator[Database]:
    prefix_user = ["--user=mysql"] if os.getuid() == 0 else []
    _own_user("mysql", place)
    data = place / "data"
    subprocess.run(
        [
            "mariadb-install-db",
            f"--datadir={data}",
            *prefix_user,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        check=True,
        capture_output=True,
    )
    command = [
        "mariadbd",
        "--no-defaults",
        *prefix_user,
        f"--datadir={data}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={place / 's'}",
        f"--pid-file={place / 'pid'}",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    root = sqlalchemy.create_engine(f"mysql+pymysql://root@127.0.0.1:{port}/mysql")
    with _server(command, place, root):
        with root.begin() as connection:
            connection.exec_driver_sql("CREATE DATABASE felice")
        engine = sqlalchemy.create_engine(f"mysql+pymysql://root@127.0.0.1:{port}/felice")
        try:
            yield Database("mariadb", f"jdbc:mariadb://127.0.0.1:{port}/felice", "root", engine)
        finally:
            engine.dispose()


def _own_user(name: str, place: Path) -> list[str]:
    """Gives the folder to the server's user if this process is root, which servers refuse to be."""
    if os.getuid() != 0:
        return []
    found = pwd.getpwnam(name)
    os.chown(place, found.pw_uid, found.pw_gid)
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups"]


class Server:
    """The process of a database."""

    def __init__(self, command: list[str], place: Path, engine: sqlalchemy.Engine) -> None:
        self._command, self._place, self._engine = command, place, engine
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it takes connections."""
        log = self._place / "log"
        give_up_at = time.monotonic() + START_S
        while True:
            # PostgreSQL refuses to start while a process of the server that was killed still ends: start it again.
            if self._process is None or self._process.poll() is not None:
                with log.open("ab") as out:
                    self._process = subprocess.Popen(self._command, stdout=out, stderr=out, cwd=self._place)
            try:
                self._engine.connect().close()
                return
            except sqlalchemy.exc.OperationalError:
                assert time.monotonic() < give_up_at, log.read_text()[-2000:]
                time.sleep(0.1)

    def kill(self) -> None:
        """Ends it at once. Processes that it started end by themselves."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._engine.dispose()


@contextmanager
def _server(command: list[str], place: Path, engine: sqlalchemy.Engine) -> Iterator[Server]:
    server = Server(command, place, engine)
    try:
        server.start()
        yield server
    finally:
        server.kill()

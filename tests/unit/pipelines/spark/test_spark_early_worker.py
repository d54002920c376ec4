"""Workers that report to Spark's Java before they import PySpark, beside PySpark's own protocol."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark import worker_python
from felice.pipelines.spark.worker_python import early_python

SECRET = "s3cret"
# Stands for a worker's module: it is imported late, and then goes on as PySpark's modules do.
MODULE = """
import os, sys, time
while not os.path.exists(os.environ["MAY_IMPORT"]):
    time.sleep(0.01)
from pyspark.worker_util import get_sock_file_to_executor
if __name__ == "__main__":
    with get_sock_file_to_executor(timeout=None) as stream:
        stream.write(" ".join([sys.executable, *sys.argv[1:]]).encode())
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "slow_worker.py").write_text(MODULE)
    return tmp_path


def start(directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    program = early_python(sys.executable)
    assert program != sys.executable
    known = os.environ | {"PYTHONPATH": str(directory), "MAY_IMPORT": str(directory / "go")}
    return subprocess.Popen(
        [program, *arguments], env=known | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def text(stream: socket.SocketIO) -> str:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
        piece = stream.read(1)
        assert piece, data
        data += piece
    return data[4:].decode()


@pytest.mark.parametrize("is_path", [False, True])
def test_a_worker_reports_before_it_imports_its_module(module: Path, is_path: bool) -> None:
    server = socket.socket(socket.AF_UNIX if is_path else socket.AF_INET)
    server.settimeout(120)
    server.bind(str(module / "socket") if is_path else ("127.0.0.1", 0))
    server.listen()
    where = (
        {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(module / "socket")}
        if is_path
        else {
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
        }
    )
    with server, start(module, "-m", "slow_worker", "more", **where) as process:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(120)
            stream = connection.makefile("rb", 0)
            if not is_path:
                assert text(stream) == SECRET
                connection.sendall(struct.pack(">i", 2) + b"ok")
            (module / "go").touch()
            data = b""
            while piece := stream.read(65536):
                data += piece
        assert process.wait(120) == 0
    assert data == struct.pack(">i", process.pid) + f"{sys.executable} more".encode()


def test_a_worker_that_java_refuses_ends(module: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)
        where = {"PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1])}
        with start(module, "-m", "slow_worker", PYTHON_WORKER_FACTORY_SECRET="wrong", **where) as process:
            connection, _ = server.accept()
            with connection:
                connection.sendall(struct.pack(">i", 3) + b"err")
                said, _ = process.communicate(timeout=120)
    assert process.returncode != 0 and b"Spark refused its worker" in said


def test_other_programs_of_spark_are_this_python(module: Path) -> None:
    with start(module, "-c", "import sys; print(sys.executable, sys.argv[1:])", "a b", "'") as process:
        said, _ = process.communicate(timeout=120)
    assert said.decode().strip() == f"{sys.executable} {['a b', chr(39)]}"


@pytest.mark.parametrize("chosen", ["/opt/other/python", "no-such-python", "/bin/sh"])
def test_another_python_that_the_user_chose_is_kept(chosen: str) -> None:
    assert early_python(chosen) == chosen


def test_python_is_kept_where_programs_cannot_be_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_python, "_program", lambda: None)
    assert early_python(sys.executable) == sys.executable


def test_no_more_is_imported_before_a_worker_reports() -> None:
    listed = "import sys, felice.pipelines.spark.early_worker; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert not {"pyspark", "pyarrow", "numpy", "asyncio", "felice.client"} & set(run.stdout.split())

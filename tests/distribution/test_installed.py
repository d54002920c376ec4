"""The distributions that `make dist` built, each installed into an empty environment: the tour of README.md works.

Slow, and needs PyPI: run it by `make dist-test`. `test_contents.py` is the part that every run of the tests has.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIST = os.environ.get("FELICE_DIST")
README = (ROOT / "README.md").read_text()
TOUR = README.partition("## A tour")[2].partition("\n## ")[0]
SHELL = re.findall(r"```sh\n(.*?)```", TOUR, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", TOUR, re.DOTALL)

# The first test of each distribution also installs it.
pytestmark = [
    pytest.mark.skipif(DIST is None, reason="needs distributions and PyPI: run make dist-test"),
    pytest.mark.timeout(1800),
]


def is_reachable(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=20):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"])
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a virtual environment that holds nothing but the distribution and its needs."""
    if not is_reachable("https://pypi.org/simple/click/"):
        pytest.skip("needs PyPI, which cannot be reached")
    [distribution] = (ROOT / str(DIST)).glob(request.param)
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(distribution)], check=True, timeout=1500)
    return home / "bin"


@pytest.fixture
def shell(environment: Path, tmp_path: Path) -> dict[str, str]:
    """Of an environment for processes: only the programs of the installation, and those of the system."""
    return {"PATH": f"{environment}{os.pathsep}/usr/bin{os.pathsep}/bin", "HOME": str(tmp_path)}


@pytest.fixture
def broker(environment: Path, shell: dict[str, str], tmp_path: Path) -> Iterator[None]:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 9092)) == 0:
            pytest.skip("needs port 9092, which the tour uses; something listens there")
    process = subprocess.Popen(
        [str(environment / "felice"), "start"], cwd=tmp_path, env=shell, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert "Felice is ready" in process.stdout.readline()
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        process.stdout.close()


def test_the_tour_works_as_written(
    environment: Path, shell: dict[str, str], broker: None, tmp_path: Path
) -> None:
    commands = next(block for block in SHELL if "felice topics create flights" in block)
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Created topic flights." in done.stdout
    assert "UA\tdelayed" in done.stdout
    assert "Topic: flights\tTopicId:" in done.stdout

    client = next(block for block in PYTHON if "Producer(" in block)
    ran = subprocess.run(
        [str(environment / "python"), "-c", client],
        cwd=tmp_path,
        env=shell,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("b'UA' b'")


def test_the_extra_that_an_error_names_can_be_installed(
    environment: Path, shell: dict[str, str], tmp_path: Path
) -> None:
    felice = [str(environment / "felice"), "zookeeper", "ls", "--connect", "127.0.0.1:1"]
    asked = subprocess.run(felice, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=300)
    found = re.search(r"pip install '(felice\[zookeeper\])'", asked.stderr)
    assert found, asked.stderr
    subprocess.run(
        [str(environment / "pip"), "install", "--quiet", found[1]], env=shell, check=True, timeout=600
    )
    assert "not installed" not in subprocess.run(felice, env=shell, capture_output=True, text=True).stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("package", ["env", "protocol", "records"])
def test_the_compiled_kernels_are_in(
    environment: Path, shell: dict[str, str], tmp_path: Path, package: str
) -> None:
    code = f"from felice.{package}.kernels import _kernels; print(_kernels.__file__)"
    python = [str(environment / "python"), "-c", code]
    done = subprocess.run(python, cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip().endswith(".so"), done.stderr

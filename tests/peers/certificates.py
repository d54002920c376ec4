"""Certificates for tests, by OpenSSL's command."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60)


def make_certificates(directory: Path) -> None:
    """A `ca.pem`, and a `server.pem` and a `client.pem` signed by it, each with its key."""
    subject = ["-nodes", "-newkey", "rsa:2048", "-days", "2"]
    openssl(directory, "req", "-x509", *subject, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (directory / "names").write_text("subjectAltName=DNS:localhost\n")
    for name in ("server", "client"):
        openssl(
            directory,
            "req",
            *subject,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            f"/CN={name}",
        )
        openssl(
            directory,
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
            "-out",
            f"{name}.crt",
        )
        pem = (directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text()
        (directory / f"{name}.pem").write_text(pem)

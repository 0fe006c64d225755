"""One served database for each module of tests, and a certificate."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_room import Served, served


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A database with protected, public and hidden tables, and the room over it."""
    with served(tmp_path_factory.mktemp("served")) as found:
        yield found


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The files of a certificate and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate of this test, is not installed")
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files], check=True, capture_output=True)
    return folder / "certificate.pem", folder / "key.pem"

"""A certificate for hook.example that nobody vouches for, made on the spot."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path) -> tuple[str, str]:
    """Return (certificate file, key file)."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    config = folder / "openssl.cnf"
    config.write_text(
        "[req]\ndistinguished_name = dn\nx509_extensions = ext\nprompt = no\n[dn]\nCN = hook.example\n"
        "[ext]\nsubjectAltName = DNS:hook.example\n"
    )
    files = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-config", str(config)]
    subprocess.run([*command, "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


def server_tls(certificate: tuple[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context

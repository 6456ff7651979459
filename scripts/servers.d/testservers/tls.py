"""A test CA, one certificate that all servers share, and one for clients that must show one.

Owns: the folder `tls` of the state: ca.crt, server.{crt,key}, client.{crt,key}, and of each pair
also a .pem with key and certificate together, as Kafka wants it.
Crash: a half-made folder is made again, since `complete` is written last.
"""

import shutil
import subprocess
import threading

from . import settings
from .process import Failed

FOLDER = settings.STATE / "tls"
CA = FOLDER / "ca.crt"

_LEAF = """basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature,keyEncipherment
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1
"""

# Kafka and Azurite start at the same time, and both want it.
_making = threading.Lock()


def make():
    """Makes the certificates unless they are there and good for another week."""
    with _making:
        _make()


def _make():
    if (FOLDER / "complete").exists() and _is_good(FOLDER / "server.crt"):
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "leaf.ext").write_text(_LEAF)
    _openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt",
        "-days", "730", "-subj", "/CN=blobfeed test CA",
        "-addext", "keyUsage=critical,keyCertSign,cRLSign",
    )
    for name, subject in (("server", "/CN=localhost"), ("client", "/CN=blobfeed")):
        key, request, certificate = f"{name}.key", f"{name}.csr", f"{name}.crt"
        _openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request,
            "-subj", subject,
        )
        _openssl(
            "x509", "-req", "-in", request, "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", "365", "-extfile", "leaf.ext", "-out", certificate,
        )
        both = (FOLDER / key).read_text() + (FOLDER / certificate).read_text()
        (FOLDER / f"{name}.pem").write_text(both)
    (FOLDER / "complete").touch()


def _is_good(certificate):
    week = str(7 * 24 * 3600)
    command = ["openssl", "x509", "-checkend", week, "-noout", "-in", str(certificate)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _openssl(*arguments):
    if not shutil.which("openssl"):
        raise Failed("no openssl here: `scripts/setup test` installs it")
    done = subprocess.run(
        ["openssl", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"openssl {arguments[0]} failed: {done.stderr.strip().splitlines()[-1:]}")

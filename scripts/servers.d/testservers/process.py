"""One server process: started in the background, found again by a later call, ended by its own id.

Owns: the pid file, and the check that the pid is still the process that was started.
Does not own: what the process is, or when it is ready.
Crash: a pid file without its process is taken for "not running"; a pid that was given to another
process since is never signalled, because the start time of the process stands beside the pid.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from . import settings

TERM_SECONDS = 20


class Failed(Exception):
    """Something a person must look at; the message says what."""


class Process:
    def __init__(self, name, ports):
        self.name = name
        self.ports = ports
        self.folder = settings.STATE / name
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self._pid_file = self.folder / "pid"
        self._child = None

    def pid(self):
        """The pid of the running process, or None."""
        try:
            noted = json.loads(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        if _start_time(noted["pid"]) != noted["started"]:
            return None
        return noted["pid"]

    def noted_ports(self):
        """The ports that the process was started with: a later call may have other settings."""
        try:
            return json.loads(self._pid_file.read_text())["ports"]
        except (OSError, ValueError, KeyError):
            return self.ports

    def is_suspended(self):
        pid = self.pid()
        return pid is not None and _state(pid) == "T"

    def start(self, command, cwd=None, env=None):
        """Starts `command` with its output in the log; does not wait for it to be ready."""
        for number in self.ports:
            refuse_busy_port(self.name, number)
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._child = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd or self.folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own session: the terminal's Ctrl-C is not for it, and it outlives this script.
                start_new_session=True,
            )
        pid = self._child.pid
        noted = {"pid": pid, "started": _start_time(pid), "ports": self.ports}
        self._pid_file.write_text(json.dumps(noted))

    def wait_until(self, answers, seconds):
        """Returns once `answers()` is true; fails when the process ends or the time is up."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self._child is not None and self._child.poll() is not None
            if ended or self.pid() is None:
                raise Failed(f"{self.name}: ended while starting{self._log_tail()}")
            if answers():
                return
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: no answer in {seconds} s{self._log_tail()}")
            time.sleep(0.1)

    def signal(self, number):
        """Sends a signal; False when the process does not run."""
        pid = self.pid()
        if pid is None:
            return False
        os.kill(pid, number)
        return True

    def end(self):
        """Asks the process to end, then makes it; False when it did not run."""
        pid = self.pid()
        if pid is None:
            self._pid_file.unlink(missing_ok=True)
            return False
        # A suspended process would take the request only after it was continued.
        for number, seconds in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, 5)):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
            deadline = time.monotonic() + seconds
            while self.pid() is not None and time.monotonic() < deadline:
                if self._child is not None:
                    self._child.poll()
                time.sleep(0.05)
            if self.pid() is None:
                self._pid_file.unlink(missing_ok=True)
                return True
        raise Failed(f"{self.name}: process {pid} does not end")

    def _log_tail(self):
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-15:]
        except OSError:
            lines = []
        return "; its log ends so:\n    " + "\n    ".join(lines) + f"\n  (all of it: {self.log})"


def refuse_busy_port(name, number):
    """Fails when somebody listens on the port, and says who where that can be seen."""
    with socket.socket() as probe:
        # As a server does it: connections that are long closed do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.HOST, number))
        except OSError as error:
            owner = _listener(number)
            raise Failed(f"{name}: port {number} is taken by {owner} ({error.strerror})") from error


def _start_time(pid):
    """Something that no later process with the same pid shares; None when there is no such process."""
    stat = _proc_stat(pid)
    if stat is not None:
        return None if stat[0] in ("Z", "X") else stat[19]
    if Path("/proc/self/stat").exists():
        return None
    # No /proc, as on macOS.
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None


def _state(pid):
    stat = _proc_stat(pid)
    if stat is not None:
        return stat[0]
    asked = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()[:1] or None


def _proc_stat(pid):
    """The fields of /proc/<pid>/stat after the name, which may itself hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _listener(number):
    """Who listens on the port, in words."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (row.split() for row in rows):
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == number:
                inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        try:
            if any(os.readlink(file) in inodes for file in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return f"process {process.name}: {command.strip()[:100]}"
        except OSError:
            continue  # Another user's process, or one that has just ended.
    if shutil.which("lsof"):
        asked = subprocess.run(
            ["lsof", "-nP", f"-iTCP:{number}", "-sTCP:LISTEN", "-Fpc"],
            capture_output=True, text=True, check=False,
        )
        found = {line[0]: line[1:] for line in asked.stdout.splitlines() if line}
        if "p" in found:
            return f"process {found['p']}: {found.get('c', '?')}"
    return "a process that cannot be seen from here"

"""Apache ZooKeeper, one server, on the port BLOBFEED_ZOOKEEPER_PORT."""

import socket

from . import packages, settings
from .process import Process

# Sessions as short as two ticks are granted, so that tests of a lost session need not wait long.
_CONFIG = """tickTime=500
maxSessionTimeout=60000
dataDir={data}
clientPortAddress=127.0.0.1
clientPort={port}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,mntr,stat,srvr,cons
"""


class ZooKeeper:
    name = "zookeeper"

    def __init__(self, brokers=None):
        self.processes = [Process("zookeeper", [settings.ZOOKEEPER_PORT])]

    def prepare(self):
        self._java = packages.java()
        self._jars = packages.jars("zookeeper")

    def start(self, process):
        process.data.mkdir(parents=True, exist_ok=True)
        config = process.folder / "zoo.cfg"
        config.write_text(_CONFIG.format(data=process.data, port=process.ports[0]))
        process.start([
            self._java, "-Xms32m", "-Xmx256m", "-XX:+UseSerialGC",
            # Nobody pulls this plug: writes need not wait for the disk.
            "-Dzookeeper.forceSync=no", "-Dzookeeper.extendedTypesEnabled=true",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp", f"{self._jars}/*",
            "org.apache.zookeeper.server.ZooKeeperServerMain", config,
        ])

    def answers(self, process):
        """Says "imok", and serves: a server that is still loading has no mode."""
        port = process.noted_ports()[0]
        return _four_letters(port, b"ruok") == b"imok" and b"Mode: " in _four_letters(port, b"srvr")

    def describe(self):
        return [f"zookeeper  {settings.HOST}:{settings.ZOOKEEPER_PORT}"]


def _four_letters(port, word):
    try:
        with socket.create_connection((settings.HOST, port), timeout=1) as connection:
            connection.sendall(word)
            answer = b""
            while part := connection.recv(4096):
                answer += part
            return answer
    except OSError:
        return b""

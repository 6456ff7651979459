"""Apicurio Registry, which speaks Confluent's API under a path, on BLOBFEED_REGISTRY_PORT.

Its schemas lie in a file, not in memory: the ids must outlive a restart as the records do.
"""

import http.client
import json

from . import packages, settings
from .process import Process

PATH = "/apis/ccompat/v7"


class Registry:
    name = "registry"

    def __init__(self, brokers=None):
        self.processes = [Process("registry", [settings.REGISTRY_PORT])]

    def prepare(self):
        self._java = packages.java()
        self._app = packages.archive("registry")

    def start(self, process):
        process.data.mkdir(parents=True, exist_ok=True)
        (runner,) = self._app.glob("*-runner.jar")
        process.start([
            self._java, "-Xms64m", "-Xmx384m", "-XX:+UseSerialGC",
            f"-Dquarkus.http.host={settings.HOST}", f"-Dquarkus.http.port={process.ports[0]}",
            f"-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{process.data}/registry",
            "-Dquarkus.datasource.jdbc.initial-size=2", "-Dquarkus.datasource.jdbc.min-size=2",
            "-jar", runner,
        ])

    def answers(self, process):
        """Lists its subjects, be there any or none."""
        connection = http.client.HTTPConnection(
            settings.HOST, process.noted_ports()[0], timeout=2
        )
        try:
            connection.request("GET", f"{PATH}/subjects")
            response = connection.getresponse()
            return response.status == 200 and isinstance(json.load(response), list)
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()

    def describe(self):
        return [f"registry   http://{settings.HOST}:{settings.REGISTRY_PORT}{PATH}"]

"""Apache Kafka without ZooKeeper (KRaft): one broker, or three that replicate.

Broker i listens on BLOBFEED_KAFKA_PORT + 100 (i - 1) for PLAINTEXT, on the next port for SASL_SSL,
and on the one after that for the other controllers.
"""

import base64
import json
import shutil
import subprocess
import uuid

from . import kafka_protocol, packages, settings, tls
from .process import Failed, Process

_LOGIN = "org.apache.kafka.common.security"

_CONFIG = """node.id={node}
process.roles=broker,controller
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{quorum}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
log.dirs={data}

# Who comes in by SASL_SSL: one user, by any of three mechanisms. A client certificate is welcome,
# not asked for.
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={login}.plain.PlainLoginModule required \\
  user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={login}.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={login}.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={tls}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={tls}/ca.crt
ssl.client.auth=requested

# A topic that a test forgot to make is a fault of the test.
auto.create.topics.enable=false
num.partitions=1
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=1

# Tests wait for nobody: groups form at once, and a dead member is noticed soon where it asks so.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=2000
group.consumer.session.timeout.ms=10000
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=1000

# Records may bear the time of ten years ago; only a topic's own settings delete or compact them,
# and then soon.
log.retention.ms=-1
log.retention.bytes=-1
log.initial.task.delay.ms=1000
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=1000
log.cleaner.dedupe.buffer.size=16777216
log.segment.delete.delay.ms=1000

num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=2
# A broker of three that is told to end hands over first; a single one has nobody to hand over to.
controlled.shutdown.enable={hand_over}
"""


class Kafka:
    name = "kafka"

    def __init__(self, brokers=None):
        """`brokers` is how many are asked for; None takes as many as there were before."""
        self._layout = settings.STATE / "kafka" / "layout.json"
        self._asked = brokers
        there = self._stored()
        self.count = brokers or (there["brokers"] if there else 1)
        # A process of a layout that is no longer wanted must still be found, to be ended.
        self.processes = [_broker(node) for node in range(1, self.count + 1)]
        self.all_processes = [_broker(node) for node in (1, 2, 3)]

    def prepare(self):
        self._java = packages.java()
        self._jars = packages.jars("kafka")
        tls.make()
        there = self._stored()
        if there and there["brokers"] != self.count:
            if any(process.pid() for process in self.all_processes):
                raise Failed(
                    f"kafka: runs with {there['brokers']} broker(s), not {self.count}:"
                    " `scripts/servers down kafka` first"
                )
            print(f"kafka: was {there['brokers']} broker(s), now {self.count}: starting empty")
            self.wipe()
        if not self._stored():
            self._layout.parent.mkdir(parents=True, exist_ok=True)
            self._layout.write_text(json.dumps({"brokers": self.count, "cluster": _cluster_id()}))

    def wipe(self):
        for process in self.all_processes:
            shutil.rmtree(process.folder, ignore_errors=True)
        self._layout.unlink(missing_ok=True)

    def start(self, process):
        plain, sasl, quorum = process.ports
        voters = [f"{node}@127.0.0.1:{_broker(node).ports[2]}" for node in range(1, self.count + 1)]
        config = process.folder / "server.properties"
        process.folder.mkdir(parents=True, exist_ok=True)
        config.write_text(_CONFIG.format(
            node=process.name.rpartition("-")[2], voters=",".join(voters),
            plain=plain, sasl=sasl, quorum=quorum,
            data=process.data, tls=tls.FOLDER, login=_LOGIN,
            user=settings.KAFKA_USER, password=settings.KAFKA_PASSWORD,
            copies=self.count, in_sync=2 if self.count > 1 else 1,
            hand_over=str(self.count > 1).lower(),
        ))
        if not (process.data / "meta.properties").exists():
            self._format(process, config)
        heap = "512m" if self.count > 1 else "1g"
        process.start(self._run("-Xms256m", f"-Xmx{heap}") + ["kafka.Kafka", config])

    def answers(self, process):
        """Knows all brokers, has a controller, and has the coordinators of groups and transactions."""
        port = process.noted_ports()[0]
        return kafka_protocol.is_ready(settings.HOST, port, self.count)

    def describe(self):
        plain = ",".join(f"{settings.HOST}:{process.ports[0]}" for process in self.processes)
        sasl = ",".join(f"{settings.HOST}:{process.ports[1]}" for process in self.processes)
        login = f"user {settings.KAFKA_USER}, password {settings.KAFKA_PASSWORD}, CA {tls.CA}"
        return [f"kafka      {plain} (PLAINTEXT)", f"           {sasl} (SASL_SSL, {login})"]

    def _format(self, process, config):
        stored = self._stored()
        shutil.rmtree(process.data, ignore_errors=True)
        command = self._run() + ["kafka.tools.StorageTool", "format"]
        command += ["--cluster-id", stored["cluster"], "--config", config]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            user = f"[name={settings.KAFKA_USER},password={settings.KAFKA_PASSWORD}]"
            command += ["--add-scram", f"{mechanism}={user}"]
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Failed(f"{process.name}: formatting failed:\n{(done.stdout + done.stderr)[-2000:]}")

    def _run(self, *options):
        return [
            self._java, *options, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-cp", f"{self._jars}/*",
        ]

    def _stored(self):
        try:
            return json.loads(self._layout.read_text())
        except (OSError, ValueError):
            return None


def _broker(node):
    first = settings.KAFKA_PORT + 100 * (node - 1)
    return Process(f"kafka-{node}", [first, first + 1, first + 2])


def _cluster_id():
    """As Kafka writes ids, but never with a leading dash, which a command line takes for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text

"""Where the servers keep their state, and on which ports they listen.

Owns: the environment variables, and their defaults.
Does not own: anything on disk.
"""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
CHECKOUT = HERE.parent.parent
STATE = Path(os.environ.get("BLOBFEED_SERVERS_DIR") or CHECKOUT / ".servers").resolve()
HOST = "127.0.0.1"

# Of the test's own listener and nowhere else: no secret.
KAFKA_USER = "blobfeed"
KAFKA_PASSWORD = "blobfeed-test"

# Azurite's published account, the same on every machine in the world.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def port(variable, default):
    """The port that `variable` names, or the default."""
    text = os.environ.get(variable) or str(default)
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise SystemExit(f"{variable}={text}: not a port")
    return int(text)


KAFKA_PORT = port("BLOBFEED_KAFKA_PORT", 9092)
ZOOKEEPER_PORT = port("BLOBFEED_ZOOKEEPER_PORT", 2181)
AZURITE_PORT = port("BLOBFEED_AZURITE_PORT", 10000)
AZURITE_HTTPS_PORT = port("BLOBFEED_AZURITE_HTTPS_PORT", 10443)
REGISTRY_PORT = port("BLOBFEED_REGISTRY_PORT", 8081)

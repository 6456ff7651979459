"""Azurite twice: over http on BLOBFEED_AZURITE_PORT, over https on BLOBFEED_AZURITE_HTTPS_PORT.

The one over https also takes OAuth tokens, which Azure's client sends over https alone. The two
share nothing: a blob that is written to one is not in the other.

Both are strict: a header that Azurite does not know (x-ms-content-crc64, say) is answered with 500,
where `--loose` would leave it out in silence and let a test pass that tested nothing.
"""

import base64
import email.utils
import hashlib
import hmac
import http.client
import ssl

from . import packages, settings, tls
from .process import Process

# Any version does, since the version is not checked.
_VERSION = "2025-05-05"


class Azurite:
    name = "azurite"

    def __init__(self, brokers=None):
        self.processes = [
            Process("azurite-http", [settings.AZURITE_PORT]),
            Process("azurite-https", [settings.AZURITE_HTTPS_PORT]),
        ]

    def prepare(self):
        self._modules = packages.node_modules("azurite")
        tls.make()

    def start(self, process):
        process.data.mkdir(parents=True, exist_ok=True)
        command = [
            "node", self._modules / "node_modules/azurite/dist/src/blob/main.js",
            "--blobHost", settings.HOST, "--blobPort", process.ports[0],
            "--location", process.data,
            "--skipApiVersionCheck", "--disableTelemetry", "--silent",
        ]
        if process.name == "azurite-https":
            command += [
                "--oauth", "basic",
                "--cert", tls.FOLDER / "server.crt", "--key", tls.FOLDER / "server.key",
            ]
        process.start(command)

    def answers(self, process):
        """Lists its containers for a request that is signed as a client's is."""
        port = process.noted_ports()[0]
        if process.name == "azurite-https":
            try:
                context = ssl.create_default_context(cafile=str(tls.CA))
            except OSError:
                return False
            connection = http.client.HTTPSConnection(
                settings.HOST, port, timeout=2, context=context
            )
        else:
            connection = http.client.HTTPConnection(settings.HOST, port, timeout=2)
        try:
            connection.request("GET", f"/{settings.AZURITE_ACCOUNT}?comp=list", headers=_signed())
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def describe(self):
        account = settings.AZURITE_ACCOUNT
        return [
            f"azurite    http://{settings.HOST}:{settings.AZURITE_PORT}/{account}",
            f"           https://{settings.HOST}:{settings.AZURITE_HTTPS_PORT}/{account} (CA {tls.CA})",
        ]


def _signed():
    """The headers of "List Containers", signed with the shared key."""
    account = settings.AZURITE_ACCOUNT
    date = email.utils.formatdate(usegmt=True)
    # The empty lines stand for the standard headers, none of which is sent. The account comes
    # twice: once for its name, once because the emulator has it in the path.
    text = (
        "GET" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
        f"/{account}/{account}\ncomp:list"
    )
    digest = hmac.new(base64.b64decode(settings.AZURITE_KEY), text.encode(), hashlib.sha256)
    signature = base64.b64encode(digest.digest()).decode()
    return {
        "x-ms-date": date,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {account}:{signature}",
    }

#!/usr/bin/env python3
"""What is in a container of Azurite, fetched with nothing but the standard library and the protocol.

  azurite.py download CONTAINER DIR  writes every blob to DIR/<name>; prints one JSON object a blob:
                                     {"name", "size", "etag", "content_type", "metadata": {...}}
  azurite.py list CONTAINER          prints the same and writes nothing
  azurite.py create CONTAINER
  azurite.py delete CONTAINER        whether or not it is there

BLOBFEED_TEST_AZURITE says where (http://127.0.0.1:10000/devstoreaccount1). Staged blocks that no
block list names are not listed: only what is committed can be seen by a reader, and here.
"""

import argparse
import base64
import datetime
import hashlib
import hmac
import http.client
import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ENDPOINT = os.environ.get("BLOBFEED_TEST_AZURITE") or "http://127.0.0.1:10000/devstoreaccount1"
ACCOUNT = "devstoreaccount1"
# Azurite's published account, the same on every machine in the world: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
VERSION = "2021-08-06"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["download", "list", "create", "delete"])
    parser.add_argument("container")
    parser.add_argument("directory", nargs="?", type=Path)
    arguments = parser.parse_args()
    azurite = Azurite()
    if arguments.command == "create":
        azurite.ask("PUT", arguments.container, {"restype": "container"}, accept=(201,))
    elif arguments.command == "delete":
        azurite.ask("DELETE", arguments.container, {"restype": "container"}, accept=(202, 404))
    elif arguments.command == "list":
        for blob in azurite.blobs(arguments.container):
            print(json.dumps(blob))
    else:
        if arguments.directory is None:
            parser.error("download needs a DIR")
        for blob in azurite.blobs(arguments.container):
            path = arguments.directory / blob["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            content = azurite.ask("GET", f"{arguments.container}/{blob['name']}")
            if len(content) != blob["size"]:
                raise SystemExit(f"{blob['name']}: {len(content)} bytes, the list says {blob['size']}")
            path.write_bytes(content)
            print(json.dumps(blob))


class Azurite:
    def __init__(self):
        url = urllib.parse.urlsplit(ENDPOINT)
        self._base = url.path.rstrip("/")
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.hostname, url.port, timeout=60)

    def blobs(self, container):
        """All committed blobs in the order of their names."""
        marker = ""
        while True:
            query = {"restype": "container", "comp": "list", "include": "metadata"}
            if marker:
                query["marker"] = marker
            root = ElementTree.fromstring(self.ask("GET", container, query))
            for blob in root.iter("Blob"):
                metadata = blob.find("Metadata")
                yield {
                    "name": blob.findtext("Name"),
                    "size": int(blob.findtext("Properties/Content-Length")),
                    "etag": blob.findtext("Properties/Etag"),
                    "content_type": blob.findtext("Properties/Content-Type"),
                    "metadata": {entry.tag: entry.text or "" for entry in metadata or ()},
                }
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return

    def ask(self, method, path, query=None, accept=(200,)):
        path = f"{self._base}/{urllib.parse.quote(path)}"
        headers = {
            "x-ms-date": datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "x-ms-version": VERSION,
        }
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{sign(method, path, query or {}, headers)}"
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        self._connection.request(method, target, headers=headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status not in accept:
            raise SystemExit(f"{method} {target}: {answer.status} {content[:500].decode(errors='replace')}")
        return content


def sign(method, path, query, headers):
    """Shared Key authorization of the Blob service, for requests without a body."""
    lines = [method, *[""] * 11]
    lines += [f"{name}:{headers[name]}" for name in sorted(headers)]
    lines.append(f"/{ACCOUNT}{path}")
    lines += [f"{name}:{query[name]}" for name in sorted(query)]
    digest = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256)
    return base64.b64encode(digest.digest()).decode()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)

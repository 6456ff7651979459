"""Just enough of Kafka's protocol to tell a broker that serves from one that merely listens.

Format: "The Kafka protocol guide", the messages Metadata v1 and FindCoordinator v1, both with
request header v1. These are old versions on purpose: their fields have fixed places.
"""

import socket
import struct

_METADATA, _FIND_COORDINATOR = 3, 10


def is_ready(host, port, brokers):
    """True when all brokers are there, one is the controller, and both coordinators are found.

    To ask for the coordinators has the broker make its two internal topics, so that the first test
    does not wait for them.
    """
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            metadata = _ask(connection, _METADATA, struct.pack(">i", 0))
            if _brokers_and_controller(metadata) != (brokers, True):
                return False
            return all(_has_coordinator(connection, kind) for kind in (0, 1))
    except (OSError, struct.error, ValueError):
        return False


def _brokers_and_controller(body):
    (count,) = struct.unpack_from(">i", body)
    at = 4
    for _ in range(count):
        at += 4
        at = _skip_string(body, at) + 4
        at = _skip_string(body, at)
    (controller,) = struct.unpack_from(">i", body, at)
    return count, controller >= 0


def _has_coordinator(connection, kind):
    key = b"scripts-servers"
    request = struct.pack(">h", len(key)) + key + struct.pack(">b", kind)
    answer = _ask(connection, _FIND_COORDINATOR, request)
    _throttle, error = struct.unpack_from(">ih", answer)
    return error == 0


def _ask(connection, key, body, version=1):
    client = b"scripts-servers"
    header = struct.pack(">hhih", key, version, 1, len(client)) + client
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (size,) = struct.unpack(">i", _read(connection, 4))
    if not 4 <= size <= 1 << 20:
        raise ValueError(f"an answer of {size} bytes")
    return _read(connection, size)[4:]


def _read(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise OSError("closed")
        data += part
    return data


def _skip_string(body, at):
    (length,) = struct.unpack_from(">h", body, at)
    return at + 2 + max(length, 0)

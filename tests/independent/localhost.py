"""Names below localhost are this machine (RFC 6761), whatever its resolver says: importing this says so to all of Python."""

import socket

_look_up = socket.getaddrinfo


def look_up(host, *rest, **named):
    name = host.decode() if isinstance(host, bytes) else host
    return _look_up("127.0.0.1" if name and name.endswith(".localhost") else host, *rest, **named)


socket.getaddrinfo = look_up

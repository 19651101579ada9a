"""Connections of the benchmark: plain HTTP/1.1 over asyncio, so that a thousand requests a second cost little beside the server."""

import asyncio
import json

# Seconds after which a caller gives up.
PATIENCE = 60


def bearer(token, source):
    return [("Authorization", f"Bearer {token}"), ("X-Forwarded-For", source)]


def of_type(kind):
    return ("Content-Type", kind)


JSON = of_type("application/json")
MCP = [JSON, ("Accept", "application/json, text/event-stream")]


def tool_call(name, arguments):
    params = {"name": name, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


class Connection:
    """A connection that is opened again when it was closed."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def send(self, method, path, headers=(), body=b""):
        """The status of the answer, whose body is read; 0 if there was none."""
        for _ in range(2):
            try:
                return await asyncio.wait_for(self._send(method, path, headers, body), PATIENCE)
            except (ConnectionError, OSError, asyncio.IncompleteReadError, IndexError, ValueError):
                # An idle connection that the server has closed; the second attempt is on a new one.
                self.close()
            except TimeoutError:
                self.close()
                return 0
        return 0

    def close(self):
        if self.writer:
            self.writer.close()
        self.reader = self.writer = None

    async def _send(self, method, path, headers, body):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()
        status = int((await self.reader.readline()).split()[1])
        length, chunked, closing = 0, False, False
        while (line := await self.reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin1").lower().partition(":")
            if name == "content-length":
                length = int(value)
            chunked |= name == "transfer-encoding"
            closing |= name == "connection" and value.strip() == "close"
        if length:
            await self.reader.readexactly(length)
        if chunked:
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                await self.reader.readexactly(size)
                await self.reader.readline()
            await self.reader.readline()
        if closing:
            self.close()
        return status

"""A mail server for tests, on the loopback address: keeps each mail as a file and sends none.

    mail.py PORT FOLDER    prints its address once it listens; 0 picks a free port; SIGTERM ends it

A file is named by its order and has the envelope in front: the header fields `X-From` and `X-To`. It speaks as much of SMTP (RFC 5321) as one who
hands over mail without TLS needs. FOLDER is created.
"""

import itertools
import pathlib
import signal
import socketserver
import sys

MAX_LINE = 1000


class Session(socketserver.StreamRequestHandler):
    """One connection."""

    timeout = 30

    def handle(self):
        self.say("220 the test server")
        envelope = []
        while line := self.rfile.readline(MAX_LINE):
            text = line.decode("utf-8", "replace").strip()
            match text.partition(" ")[0].upper():
                case "EHLO" | "HELO":
                    self.say("250 the test server")
                case "MAIL" | "RCPT" as verb:
                    address = text.partition("<")[2].partition(">")[0]
                    envelope.append(f"X-{'From' if verb == 'MAIL' else 'To'}: {address}\r\n")
                    self.say("250 ok")
                case "DATA":
                    self.say("354 go on")
                    if not self.keep("".join(envelope).encode(), self.content()):
                        return
                    envelope = []
                    self.say("250 kept")
                case "RSET":
                    envelope = []
                    self.say("250 ok")
                case "NOOP":
                    self.say("250 ok")
                case "QUIT":
                    return self.say("221 bye")
                case _:
                    self.say("502 not here")

    def say(self, line):
        self.wfile.write(f"{line}\r\n".encode())

    def content(self):
        """The mail up to the line with a dot; None if the connection ends before."""
        lines = []
        while line := self.rfile.readline(MAX_LINE):
            if line == b".\r\n":
                return b"".join(lines)
            lines.append(line.removeprefix(b"."))
        return None

    def keep(self, envelope, content):
        if content is None:
            return False
        # Under its name only when it is whole.
        path = self.server.folder / f"{next(self.server.numbers):04}.eml"
        partial = path.with_suffix(".partial")
        partial.write_bytes(envelope + content)
        partial.rename(path)
        return True


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def main(port, folder):
    with Server(("127.0.0.1", int(port)), Session) as server:
        server.folder, server.numbers = pathlib.Path(folder), itertools.count(1)
        server.folder.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print(f"smtp://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1].isdigit():
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    main(*sys.argv[1:])

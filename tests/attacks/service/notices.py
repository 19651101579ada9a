"""Notices: webhooks into other people's ports and the service's own network, and strangers' words in mail."""

import socket
import threading
import time

from harness import Machine, Service, finish, free_port, row

MAILS = []


def serve_mail(port):
    """A mail server that keeps what it is sent."""
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        threading.Thread(target=receive, args=(listener.accept()[0],), daemon=True).start()


def receive(connection):
    stream = connection.makefile("rwb")

    def say(line):
        stream.write(line + b"\r\n")
        stream.flush()

    say(b"220 here")
    while line := stream.readline():
        word = line[:4].upper()
        if word == b"DATA":
            say(b"354 go on")
            mail = b""
            while (part := stream.readline()) not in (b".\r\n", b""):
                mail += part
            MAILS.append(mail.decode("utf-8", "replace"))
        if word == b"QUIT":
            say(b"221 done")
            return
        say(b"250 yes")


port = free_port()
threading.Thread(target=serve_mail, args=(port,), daemon=True).start()
service = Service("https://vault.example", VAULT_SMTP_URL=f"smtp://127.0.0.1:{port}", VAULT_MAIL_FROM="vault@vault.example")
token = service.tenant("team")
PATH = "/admin/vaults/team/notices"


def add(address):
    return service.api(token, "POST", PATH, {"address": address})


def test(made):
    """The result of a test notice to a webhook, which is removed again."""
    result = service.api(token, "POST", f"{PATH}/{made.json['id']}/test").json
    service.api(token, "DELETE", f"{PATH}/{made.json['id']}")
    return result


for number in (22, 25, 6379, 8080):
    refused = add(f"https://hooks.example:{number}/")
    allowed = add("https://hooks.example:8443/")
    row(f"a webhook reaches port {number} of a public host", refused.status == 422, allowed.status == 201, str(refused))
    service.api(token, "DELETE", f"{PATH}/{allowed.json['id']}")

# A name that exists inside, one that does not exist, and an inner address.
results = [test(add(f"https://{name}/")) for name in ("localhost", "nothing.invalid", socket.gethostname())]
failures = {result.get("failure") for result in results}
row("a test tells which names exist in the network of the service", len(failures) == 1, not any(result["arrived"] for result in results), str(failures))
refused = [add(f"https://{address}/") for address in ("127.0.0.1", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1", "2130706433")]
row("a webhook leads to an inner address", all(answer.status == 422 for answer in refused), True, str([answer.status for answer in refused]))

service.api(token, "PUT", PATH + "/mail", {"mail": True})
HOSTILE = ("go to https://evil.example/pay now", "evil.example", "a\r\nBcc: x@evil.example", "www.evil.example/login")
for name in HOSTILE:
    Machine(service).enrol("team", hostname=name)
Machine(service).enrol("team", hostname="laptop")
end = time.time() + 150
while not MAILS and time.time() < end:
    time.sleep(1)
mail = "\n".join(MAILS)
row("a stranger's machine name puts an address into the owner's mail", "evil.example" not in mail, "machine" in mail, mail[:0] + f"{len(MAILS)} mails")
row("a machine name adds a header", "\nBcc:" not in mail and all(one.count("\nSubject:") <= 1 for one in MAILS), bool(MAILS))
finish()

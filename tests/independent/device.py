"""A device of vault, written from docs/device-protocol.md alone: `device.py HOME link ADDRESS [--expect-key FINGERPRINT] [--code CODE]`,
`device.py HOME pull` and `device.py HOME use SKILL`. Its exits are those of `vault`, its last line names the refusal."""

import http.client
import pickle
import shutil
import sys
from contextlib import closing
from dataclasses import replace
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from objects import *

EXITS = {"release_awaited": 3, "release_expired": 3, "device_pending": 4, "device_revoked": 4, "newer_vault": 1, "wrong_use": 2, "service_unreachable": 7, "answer_unreadable": 7,
         "redirect_refused": 7, "encoding_refused": 7, "too_large": 7, "service_rolled_back": 6}
ANSWER = record(status=pattern("pending|active|revoked"), device_id=text, catalog=optional(maybe(record(sha256=HASH, size=integer, release=integer))))
url_base64 = lambda data: base64.urlsafe_b64encode(data).decode().rstrip("=")


def public_key(secret):
    return url_base64(Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw())


def signed_headers(secret, method, path, now):
    signature = Ed25519PrivateKey.from_private_bytes(secret).sign(f"{method}\n{path}\n{now}".encode())
    return {"X-Vault-Device": public_key(secret), "X-Vault-Timestamp": str(now), "X-Vault-Signature": url_base64(signature)}


class Device:
    """One link, kept in a folder that only its user may read."""

    def __init__(self, home):
        self.home, self.kept = Path(home), Path(home) / "link"
        kept = pickle.loads(self.kept.read_bytes()) if self.kept.exists() else {"secret": os.urandom(32), "file": b"", "reader": Reader()}
        self.secret, self.file, self.reader = kept["secret"], kept["file"], kept["reader"]
        self.reader.now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.reader.fetch = lambda sha, size: self.ask("GET", f"bundles/{sha}.json", size)

    def save(self):
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.kept.with_suffix(".new")
        new.touch(0o600)
        new.write_bytes(pickle.dumps({"secret": self.secret, "file": self.file, "reader": replace(self.reader, fetch=None, files={})}))
        new.rename(self.kept)

    def ask(self, method, below, ceiling, body=None):
        """The status and the body of an answer, which has at most `ceiling` bytes."""
        base = urlsplit(self.reader.base)
        path = f"{base.path}/v/{self.reader.slug}/{below}"
        headers = {**signed_headers(self.secret, method, path, int(seconds(self.reader.now))), "Accept-Encoding": "identity"}
        kind = http.client.HTTPSConnection if base.scheme == "https" else http.client.HTTPConnection
        try:
            with closing(kind(base.netloc, timeout=10)) as connection:
                connection.request(method, path, body, headers if body is None else {**headers, "Content-Type": "application/json"})
                answer = connection.getresponse()
                ceiling = ceiling if answer.status < 300 else 65536
                data = answer.read(ceiling + 1)
        except (OSError, http.client.HTTPException):
            raise Refused("service_unreachable") from None
        need("redirect", not 300 <= answer.status < 400, "redirect_refused")
        need("encoding", answer.headers.get("Content-Encoding", "identity") == "identity", "encoding_refused")
        if answer.status < 300:
            need("ceiling", len(data) <= ceiling, "bundle_refused" if below.startswith("bundles/") else "too_large")
            return data
        code = (re.search(rb'"code":\s?"([a-z_]+)"', data) or [b"", b"status_%d" % answer.status])[1].decode()
        if code == "timestamp_out_of_range":
            print("the service's clock says", answer.headers.get("Date"), file=sys.stderr)
        EXITS.setdefault(code, {401: 4, 402: 8, 403: 4, 408: 7, 429: 7}.get(answer.status, 7 if answer.status >= 500 else 1))
        raise Refused("service_rolled_back" if code == "catalog_not_published" and self.file else code)

    def link(self, address, expected, code):
        place = re.fullmatch(r"(https://[^/?#@%]+(?:/[A-Za-z0-9._~/-]*[^/])?|http://(?:localhost|127\.[0-9.]+|\[::1\])(?::[0-9]+)?(?:/[A-Za-z0-9._~/-]*[^/])?)/v/([a-z0-9-]+)", address)
        need("address", place, "wrong_use")
        self.reader.base, self.reader.slug, self.reader.expected = *place.groups(), expected
        body = {"public_key": public_key(self.secret), **({"code": code} if code else {})}
        parse(self.ask("POST", "devices", 4096, canonical(body)), ANSWER, "answer_unreadable", signed=False)
        self.save()
        print(fingerprint("dev", key_bytes(body["public_key"])))

    def pull(self):
        current = parse(self.ask("GET", "devices/current", 4096), ANSWER, "answer_unreadable", signed=False)
        need("active", current["status"] == "active", "device_" + current["status"])
        need("rolled back", current["catalog"] or not self.file, "service_rolled_back")
        if not current["catalog"]:
            return print("nothing is published yet")
        file = self.file if current["catalog"]["sha256"] == sha256(self.file) else self.ask("GET", "catalog.json", 4 * MIB)
        try:
            result = self.reader.take_catalog(file)
            if result == "ok":
                self.install()
            self.file = file
            print(*self.reader.warnings, f"release {self.reader.stored['release']}: {result}", sep="\n")
        finally:
            self.save()

    def install(self):
        """Writes all files beside the present ones, then switches in one step."""
        new = self.home / f"release-{self.reader.stored['payload_sha256']}"
        shutil.rmtree(new, ignore_errors=True)
        for skill, files in self.reader.files.items():
            for path, (content, mode) in files.items():
                (new / skill / path).parent.mkdir(parents=True, exist_ok=True)
                (new / skill / path).write_bytes(content)
                (new / skill / path).chmod(int(mode, 8))
        new.mkdir(exist_ok=True)
        (self.home / "new").unlink(missing_ok=True)
        (self.home / "new").symlink_to(new.name)
        (self.home / "new").rename(self.home / "skills")
        for old in {*self.home.glob("release-*")} - {new}:
            shutil.rmtree(old)

    def use(self, name):
        need("installed", name in self.reader.skills, "not_installed")
        need("M5 installed", was_publishers(self.reader.skills[name].signer, self.reader.chain, self.reader.elsewhere), "release_awaited")


def main(home, command, *arguments):
    options = dict(zip(arguments[1::2], arguments[2::2]))
    try:
        device = Device(home)
        if command == "link":
            device.link(arguments[0], options.get("--expect-key"), options.get("--code"))
        elif command == "pull":
            device.pull()
        else:
            device.use(arguments[0])
    except Refused as refusal:
        print(refusal.args[0], file=sys.stderr)
        return EXITS.get(refusal.args[0], 6)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

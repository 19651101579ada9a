"""A device of vault, written from docs/device-protocol.md alone: `device.py HOME link ADDRESS
[--expect-key FINGERPRINT] [--code CODE]`, `device.py HOME pull` and `device.py HOME use SKILL`. Its
exits are those of `vault`, its last line names the refusal."""

import http.client
import os
import pickle
import re
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import localhost  # noqa: F401
from reader import (
    GIVEN, MIB, TYPES, Reader, Refused, canonical, fingerprint, key_bytes, need, parse, sha256,
    to_base64url)


def signed_headers(secret, method, path, now):
    key = Ed25519PrivateKey.from_private_bytes(secret)
    signature = key.sign(f"{method}\n{path}\n{now}".encode())
    return {"X-Vault-Device": to_base64url(key.public_key().public_bytes_raw()),
            "X-Vault-Timestamp": str(now), "X-Vault-Signature": to_base64url(signature)}


class Device(Reader):
    """One link, kept in a folder that only its user may read."""

    def __init__(self, home):
        super().__init__(now=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        self.home, self.secret, self.file = Path(home), os.urandom(32), b""
        if (self.home / "link").exists():
            vars(self).update(pickle.loads((self.home / "link").read_bytes()), now=self.now)

    def save(self):
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.home / "new").write_bytes(pickle.dumps(vars(self)))
        (self.home / "new").rename(self.home / "link")

    def ask(self, method, below, ceiling, body=None):
        """The body of an answer, which has at most `ceiling` bytes."""
        base, https = urlsplit(self.base), self.base.startswith("https:")
        path = f"{base.path}/v/{self.slug}/{below}"
        headers = {**signed_headers(self.secret, method, path, int(time.time())),
                   "Accept-Encoding": "identity", "Content-Type": "application/json"}
        connect = http.client.HTTPSConnection if https else http.client.HTTPConnection
        try:
            connection = connect(base.netloc, timeout=30)
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read((ceiling if answer.status < 300 else 65536) + 1)
        except (OSError, http.client.HTTPException):
            raise Refused("service_unreachable", 503) from None
        need("redirect", not 300 <= answer.status < 400)
        need("encoding", answer.headers.get("Content-Encoding", "identity") == "identity")
        if answer.status < 300:
            too_large = "bundle_refused" if below.startswith("bundles/") else "too_large"
            need("ceiling", len(data) <= ceiling, too_large)
            return data
        code = (re.search(rb'"code":\s?"([a-z_]+)"', data) or [b"", b"unknown"])[1].decode()
        if code == "timestamp_out_of_range":
            print("the service's clock says", answer.headers.get("Date"), file=sys.stderr)
        if code == "catalog_not_published" and self.file:
            raise Refused("service_rolled_back")
        raise Refused(code, answer.status)

    def fetch(self, sha, size):
        return self.ask("GET", f"bundles/{sha}.json", size)

    def link(self, address, *options):
        place, options = TYPES["address"].fullmatch(address), dict(zip(options[::2], options[1::2]))
        need("address", place)
        self.base, self.slug = place["base"], place["slug"]
        self.expected = options.get("--expect-key")
        key = signed_headers(self.secret, "", "", 0)["X-Vault-Device"]
        code = {"code": options["--code"]} if "--code" in options else {}
        answer = self.ask("POST", "devices", 4096, canonical({"public_key": key, **code}))
        parse(answer, "device", "answer_unreadable", signed=False)
        self.save()
        print(fingerprint("dev", key_bytes(key)))

    def pull(self):
        answer = self.ask("GET", "devices/current", 4096)
        current = parse(answer, "device", "answer_unreadable", signed=False)
        need("active", current.status == "active", "device_" + current.status)
        need("rolled back", current.catalog or not self.file, "service_rolled_back")
        if not current.catalog:
            return print("nothing is published yet")
        known, pinned = current.catalog.sha256 == sha256(self.file), self.chain or self.expected
        file = self.file if known else self.ask("GET", "catalog.json", 4 * MIB)
        try:
            result = self.take_catalog(file)
        except Refused as refusal:
            # The first contact without a fingerprint takes roots with a release, or an awaited one.
            if pinned or refusal.args == ("release_awaited",):
                self.save()
            raise
        if result == "ok":
            self.install()
        self.file = file
        self.save()
        print(*self.warnings, f"release {self.stored.release}: {result}", sep="\n")

    def install(self):
        """Writes all files beside the present ones, then switches in one step."""
        new, link = self.home / f"release-{self.stored.payload_sha256}", self.home / "next"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        for skill in self.skills.values():
            for path, (content, mode) in skill.files.items():
                place = new / skill.name / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
                place.chmod(int(mode, 8))
            del skill.files
        link.unlink(missing_ok=True)
        link.symlink_to(new.name)
        link.rename(self.home / "skills")
        for old in {*self.home.glob("release-*")} - {new}:
            shutil.rmtree(old)

    def use(self, name):
        if name not in self.skills:
            raise Refused("not_installed")
        need("M5 installed", self.counts(self.skills[name].signer), "release_awaited")


def main(home, command, *words):
    try:
        device = Device(home)
        {"link": device.link, "pull": device.pull, "use": device.use}[command](*words)
        return 0
    except Refused as refusal:
        error, status = (*refusal.args, 0)[:2]
        print(error, file=sys.stderr)
        names = error, str(status), f"{status // 100}xx"
        return next((GIVEN["exits"][name] for name in names if name in GIVEN["exits"]), 6)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

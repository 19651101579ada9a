"""Hosts that are wrong in one thing each, for tests/vectors/run: everything else of what they serve is right and signed with the test keys."""

import base64
import hashlib
import json
from datetime import timedelta
from types import SimpleNamespace

L = 2**252 + 27742317777372353535851937790883648493
CATALOG_TYPE, ROOT_TYPE, MANIFEST_TYPE = (f"application/vnd.vault.{one}+json" for one in ("catalog.v2", "root.v1", "skill-manifest.v2"))
MIB = 1 << 20
sha256 = lambda data: hashlib.sha256(data).hexdigest()
compact = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
standard = lambda data: base64.b64encode(data).decode()


class Vault:
    """A vault of two publishers whose releases need both, at this address and time: releases 1 to 3, of which 1 and 2 are accepted already. Release 2 has
    a new version of `deploy`, and no more the skill `old`."""

    def __init__(self, base, now, secrets):
        self.base, self.now, self.secrets = base, now, secrets
        self.public = {name: base64.urlsafe_b64encode(secret.public_key().public_bytes_raw()).decode().rstrip("=") for name, secret in secrets.items()}
        one, two = {"threshold": 1, "keys": self.keys("anna")}, {"threshold": 2, "keys": self.keys("anna", "bob")}
        first = self.root(1, None, one, one, ["anna"])
        self.id = "vlt_" + base64.b32encode(hashlib.sha256(base64.b64decode(first["payload"])).digest()).decode().lower()[:26]
        self.roots = [first]
        self.roots.append(self.root(2, first, {"threshold": 1, "keys": self.keys("recovery")}, two, ["anna", "recovery"]))
        self.objects = {}
        self.bundles = {(name, version): self.bundle(name, version) for name in ("deploy", "hello", "old") for version in (1, 2)}
        self.catalogs = [self.catalog(1, skills=[self.bundles["deploy", 1], self.bundles["hello", 1], self.bundles["old", 2]])]
        for number in (2, 3):
            self.catalogs.append(self.catalog(number))

    def keys(self, *names):
        return sorted(self.public[name] for name in names)

    def at(self, days=0.0):
        return (self.now + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def entry(self, name, message):
        raw = base64.urlsafe_b64decode(self.public[name] + "=")
        return {"keyid": sha256(raw), "sig": standard(self.secrets[name].sign(message))}

    def envelope(self, kind, payload, signers):
        message = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
        return {"payloadType": kind, "payload": standard(payload), "signatures": [self.entry(name, message) for name in signers]}

    def root(self, number, before, root, release, signers, **members):
        keys = sorted({*root["keys"], *release["keys"]})
        names = {key: name for name, key in self.public.items()}
        doc = {"schema": "vault.root/1", "vault_id": self.id if before else None, "version": number,
               "previous_sha256": sha256(base64.b64decode(before["payload"])) if before else None, "issued_at": self.at(-9), "expires_at": None,
               "keys": [{"public_key": key, "name": names.get(key, "a key")} for key in keys], "root": root, "release": release, "revoked": [], **members}
        return self.envelope(ROOT_TYPE, compact(doc), signers)

    def bundle(self, name, version, signers=("anna",), manifest=None, change=None, write=compact, content=None):
        """Stores a bundle and returns its entry of a catalog. `manifest` and `change` are laid over manifest and bundle."""
        text = content or f"---\nname: {name}\ndescription: Skill {name} of a made-up vault.\n---\nVersion {version}.\n"
        file = {"path": "SKILL.md", "size": len(text.encode()), "sha256": sha256(text.encode()), "mode": "0644"}
        signed = {"schema": "vault.skill-manifest/2", "vault_id": self.id, "name": name, "version": version, "signed_at": self.at(-8), "files": [file],
                  "actions": {}, "agents": [], "provenance": {"identifier": "inline:usr_01", "kind": "inline", "revision": None, "fetched_at": self.at(-8)},
                  "gate": {"strict": True, "rules": "structure/1", "flags": []}}
        whole = {"schema": "vault.bundle/1", "manifest": self.envelope(MANIFEST_TYPE, compact({**signed, **(manifest or {})}), signers),
                 "files": [{"path": "SKILL.md", "encoding": "utf-8", "content": text}]}
        return self.store(write({**whole, **(change or {})}), name=name, version=version)

    def store(self, data, **members):
        sha = sha256(data)
        self.objects[sha] = data
        return {**members, "bundle_hash": sha, "path": f"bundles/{sha}.json", "size": len(data)}

    def catalog(self, number, **members):
        """The payload of a release, as it should be but for `members`."""
        skills = members.pop("skills", None) or [self.bundles["deploy", 2], self.bundles["hello", 1]]
        listed = [{"name": one["name"], "bundle_hash": one["bundle_hash"], "description": f"Skill {one['name']} of a made-up vault.", "tags": [], "categories": [],
                   "when_to_use": "", "agents": [], "actions": []} for one in skills]
        index = self.store(compact({"schema": "vault.index/2", "vault_id": self.id, "skills": listed}))
        previous = {"release": number - 1, "payload_sha256": sha256(compact(self.catalogs[number - 2]))} if number > 1 else None
        return {"schema": "vault.catalog/2", "vault_id": self.id, "slug": "acme", "audience": [f"{self.base}/v/acme/"], "release": number,
                "issued_at": self.at(-5 + number), "expires_at": self.at(85 + number), "public_key": self.public["anna"], "root_version": len(self.roots),
                "root_sha256": sha256(base64.b64decode(self.roots[-1]["payload"])), "previous": previous, "skills": skills, "index": [index], "policy": None,
                "profiles": [], "withdrawn": [], **members}

    def file(self, payload, signers=("anna", "bob"), roots=None, **members):
        data = payload if isinstance(payload, bytes) else compact(payload)
        return compact({"public_key": self.public["anna"], "roots": self.roots if roots is None else roots, **self.envelope(CATALOG_TYPE, data, signers), **members})

    def signed(self, number=3, **members):
        return self.file(self.catalog(number, **members))

    def parts(self, number=3):
        """The members of the file of a good release."""
        return json.loads(self.file(self.catalogs[number - 1]))

    def changed(self, change, number=3):
        parts = self.parts(number)
        change(parts)
        return compact(parts)


def turn(text):
    """Base64 of the same length with one bit of the bytes turned."""
    raw = bytearray(base64.b64decode(text))
    raw[len(raw) // 2] ^= 1
    return standard(bytes(raw))


def malleable(sig):
    """S + L in place of S."""
    raw = base64.b64decode(sig)
    return standard(raw[:32] + (int.from_bytes(raw[32:], "little") + L).to_bytes(32, "little"))


def files(vault):
    """Name, exit and catalog file of each host that serves a wrong catalog."""
    anna, bob = (lambda parts: parts["signatures"][0]), (lambda parts: parts["signatures"][1])
    good = compact(vault.catalogs[2])
    two = {"threshold": 2, "keys": vault.keys("anna", "bob")}
    recovery = {"threshold": 1, "keys": vault.keys("recovery")}
    third = lambda signers, release=two, **members: vault.root(3, vault.roots[1], recovery, release, signers, **members)
    weak = base64.urlsafe_b64encode(bytes([1]) + bytes(31)).decode().rstrip("=")

    def skills(*changed):
        return {"skills": [one for one in (*changed, vault.bundles["hello", 1]) if one]}

    yield "a bit of the payload", 6, vault.changed(lambda parts: parts.update(payload=turn(parts["payload"])))
    yield "one signature of two", 6, vault.file(vault.catalogs[2], ["anna"])
    yield "one key twice under one keyid", 6, vault.changed(lambda parts: parts.update(signatures=[anna(parts), anna(parts)]))
    yield "one key twice, once under the keyid of another", 6, vault.changed(lambda parts: bob(parts).update(sig=anna(parts)["sig"]))
    yield "one key twice, once in upper case", 6, vault.changed(lambda parts: bob(parts).update(anna(parts), keyid=anna(parts)["keyid"].upper()))
    yield "a second signature by a stranger", 6, vault.file(vault.catalogs[2], ["anna", "stranger"])
    yield "a second signature by the root key", 6, vault.file(vault.catalogs[2], ["anna", "recovery"])
    yield "17 signatures", 6, vault.changed(lambda parts: parts["signatures"].extend({**anna(parts), "keyid": str(n)} for n in range(15)))
    yield "no signature", 6, vault.changed(lambda parts: parts.update(signatures=[]))
    yield "S + L in a signature", 6, vault.changed(lambda parts: bob(parts).update(sig=malleable(bob(parts)["sig"])))
    yield "a signature of 65 bytes", 6, vault.changed(lambda parts: bob(parts).update(sig=standard(base64.b64decode(bob(parts)["sig"]) + b"\0")))
    yield "base64 without padding", 6, vault.changed(lambda parts: bob(parts).update(sig=bob(parts)["sig"].rstrip("=")))
    yield "base64 with a line feed", 6, vault.changed(lambda parts: parts.update(payload=parts["payload"] + "\n"))
    yield "the payload type of a root", 6, compact({**vault.parts(), **vault.envelope(ROOT_TYPE, good, ["anna", "bob"])})
    yield "signed without the payload type", 6, vault.changed(lambda parts: [one.update(vault.entry(name, good)) for one, name in zip(parts["signatures"], ("anna", "bob"))])
    yield "text after the file", 6, vault.file(vault.catalogs[2]) + b"x"
    yield "a byte order mark", 6, b"\xef\xbb\xbf" + vault.file(vault.catalogs[2])
    yield "two payloads in one file", 6, vault.file(vault.catalogs[2])[:-1] + b',"payload":"e30="}'
    yield "a member twice in the payload", 6, vault.file(good[:-1] + b',"slug":"acme"}')
    yield "a number with a fraction", 6, vault.file(good.replace(b'"release":3,', b'"release":3.0,'))
    yield "a number as a text", 6, vault.signed(release="3")
    yield "null in place of a list", 6, vault.signed(withdrawn=None)
    yield "a member is missing", 6, vault.file({name: value for name, value in vault.catalogs[2].items() if name != "policy"})
    yield "half a surrogate pair in a member that nobody knows", 6, vault.file(good[:-1] + b',"x":"\\ud800"}')
    yield "a list of 33 levels in a member that nobody knows", 6, vault.file(good[:-1] + b',"x":' + b"[" * 32 + b"]" * 32 + b"}")

    yield "the roots turned round", 6, vault.file(vault.catalogs[2], roots=vault.roots[::-1])
    yield "no roots", 6, vault.file(vault.catalogs[2], roots=[])
    yield "the roots of another vault", 6, vault.file(vault.catalogs[2], roots=[vault.root(1, None, recovery, recovery, ["recovery"])])
    yield "root version 3 by a publisher", 6, vault.file(vault.catalogs[2], roots=[*vault.roots, third(["anna", "bob"])])
    yield "root version 3 with a lower threshold by a stranger", 6, vault.file(vault.catalogs[2], roots=[*vault.roots, third(["stranger"], {**two, "threshold": 1})])
    yield "root version 3 of another vault", 6, vault.file(vault.catalogs[2], roots=[*vault.roots, third(["recovery"], vault_id="vlt_" + "a" * 26)])
    yield "root version 3 after another version 2", 6, vault.file(vault.catalogs[2], roots=[*vault.roots, third(["recovery"], previous_sha256="0" * 64)])
    yield "root version 4 in place of 3", 6, vault.file(vault.catalogs[2], roots=[*vault.roots, third(["recovery"], version=4)])
    yield "a key of small order", 6, vault.file(vault.catalogs[2], roots=[*vault.roots, third(["recovery"], {"threshold": 1, "keys": sorted([weak, *vault.keys("anna")])})])
    yield "another version 2", 6, vault.file(vault.catalogs[2], roots=[vault.roots[0], vault.root(2, vault.roots[0], recovery, two, ["anna", "recovery"], issued_at=vault.at(-3))])

    yield "another public_key outside", 6, vault.file(vault.catalogs[2], public_key=vault.public["bob"])
    yield "a public_key that has not signed", 6, vault.file(vault.catalog(3, public_key=vault.public["carl"]), public_key=vault.public["carl"])
    yield "another vault id", 6, vault.signed(vault_id="vlt_" + "a" * 26)
    yield "another slug", 6, vault.signed(slug="other")
    yield "another address", 6, vault.signed(audience=["https://vault.example/v/acme/"])
    yield "the address without its last slash", 6, vault.signed(audience=[f"{vault.base}/v/acme"])
    yield "another hash of the roots", 6, vault.signed(root_sha256="0" * 64)
    yield "the roots of the release before", 3, vault.signed(root_version=1, root_sha256=sha256(base64.b64decode(vault.roots[0]["payload"])))
    yield "a life of 400 days and a second", 6, vault.signed(issued_at=vault.at(-1), expires_at=vault.at(399 + 2 / 86400))
    yield "over since a second", 3, vault.signed(issued_at=vault.at(-90), expires_at=vault.at(-1 / 86400))
    yield "over, and by one signature", 6, vault.file(vault.catalog(3, issued_at=vault.at(-90), expires_at=vault.at(-1)), ["anna"])
    yield "over, and for another slug", 6, vault.signed(issued_at=vault.at(-90), expires_at=vault.at(-1), slug="other")
    yield "over, and below the stored release", 3, vault.file(vault.catalog(1, issued_at=vault.at(-90), expires_at=vault.at(-1)))
    yield "a life of an hour, over", 6, vault.signed(issued_at=vault.at(-1), expires_at=vault.at(-23 / 24))
    yield "release 1", 6, vault.file(vault.catalogs[0])
    yield "another release 2", 6, vault.signed(2, issued_at=vault.at(-2.5))
    yield "a million and one releases later", 6, vault.signed(release=1_000_003)
    yield "no release before", 6, vault.signed(previous=None)
    yield "another release 2 before", 6, vault.signed(previous={"release": 2, "payload_sha256": "0" * 64})
    yield "a skill at a lower version", 6, vault.signed(**skills(vault.bundles["deploy", 1]))
    yield "another skill under the same version", 6, vault.signed(**skills(vault.bundle("deploy", 2, content="---\nname: deploy\ndescription: Another one.\n---\nOther.\n")))
    removed = lambda entry: {"skills": [vault.bundles["deploy", 2], vault.bundles["hello", 1], entry]}
    yield "a removed skill at a lower version", 6, vault.signed(**removed(vault.bundles["old", 1]))
    yield "another skill under the version of a removed one", 6, vault.signed(**removed(vault.bundle("old", 2, content="---\nname: old\ndescription: Another one.\n---\nOther.\n")))
    yield "skills not in their order", 6, vault.signed(skills=[vault.bundles["hello", 1], vault.bundles["deploy", 2]])
    yield "a skill twice", 6, vault.signed(skills=[vault.bundles["hello", 1]] * 2)
    yield "the path of another bundle", 6, vault.signed(**skills({**vault.bundles["deploy", 2], "path": vault.bundles["hello", 1]["path"]}))
    yield "a listed bundle is withdrawn", 6, vault.signed(withdrawn=[{"name": "hello", "bundle_hash": vault.bundles["hello", 1]["bundle_hash"], "reason": "", "since_release": 3}])

    new = lambda version=3, **given: skills(vault.bundle("deploy", version, **given))
    at_3 = lambda entry: skills({**entry, "version": 3})
    yield "an index in place of a bundle", 6, vault.signed(**at_3({"name": "deploy", **vault.catalogs[2]["index"][0]}))
    yield "the bundle of another skill", 6, vault.signed(**at_3({**vault.bundles["hello", 2], "name": "deploy"}))
    yield "a bundle of another version", 6, vault.signed(**at_3(vault.bundles["deploy", 1]))
    yield "a bundle that is a byte shorter than signed", 6, vault.signed(**at_3({**vault.bundles["deploy", 1], "size": vault.bundles["deploy", 1]["size"] + 1}))
    yield "a bundle that is a byte longer than signed", 6, vault.signed(**at_3({**vault.bundles["deploy", 1], "size": vault.bundles["deploy", 1]["size"] - 1}))
    yield "a bundle with a space", 6, vault.signed(**new(write=lambda value: compact(value).replace(b'"files":', b'"files": ')))
    yield "a bundle with a line feed at its end", 6, vault.signed(**new(write=lambda value: compact(value) + b"\n"))
    yield "a bundle with an escape that is not needed", 6, vault.signed(**new(write=lambda value: compact(value).replace(b"made-up", b"made\\u002dup")))
    yield "a bundle with a member that nobody knows", 6, vault.signed(**new(change={"x": 1}))
    yield "a bundle with other content than its manifest", 6, vault.signed(**new(change={"files": [{"path": "SKILL.md", "encoding": "utf-8", "content": "other"}]}))
    yield "a bundle with another encoding", 6, vault.signed(**new(content="---\nname: deploy\ndescription: A.\n---\n", change={"files": [{"path": "SKILL.md", "encoding": "base64", "content": standard(b"---\nname: deploy\ndescription: A.\n---\n")}]}))
    yield "a bundle without its file", 6, vault.signed(**new(change={"files": []}))
    yield "a manifest by a stranger", 6, vault.signed(**new(signers=["stranger"]))
    yield "a manifest by the root key", 6, vault.signed(**new(signers=["recovery"]))
    yield "a manifest with two signatures", 6, vault.signed(**new(signers=["anna", "bob"]))
    yield "a manifest of another vault", 6, vault.signed(**new(manifest={"vault_id": "vlt_" + "a" * 26}))
    head = "---\nname: deploy\ndescription: A.\n---\n"
    large = [("SKILL.md", head), ("large.txt", "a" * (MIB + 1))]
    yield "a large file that is not in parts", 6, vault.signed(**new(
        manifest={"files": [{"path": path, "size": len(text), "sha256": sha256(text.encode()), "mode": "0644"} for path, text in large]},
        change={"files": [{"path": path, "encoding": "utf-8", "content": text} for path, text in large]}))
    above = [{"path": path, "size": 1, "sha256": sha256(b"x"), "mode": "0644"} for path in ("../up", "SKILL.md")]
    texts = [{"path": one["path"], "encoding": "utf-8", "content": "x"} for one in above]
    yield "a file above the skill", 6, vault.signed(**new(manifest={"files": above}, change={"files": texts}))

    def profile(agent, *listed):
        content = {"schema": "vault.profile/1", "name": "codex", "agent": agent, "skills": [{name: one[name] for name in ("name", "bundle_hash", "size")} for one in listed]}
        return {"profiles": [vault.store(compact(content), name="codex", agent="codex")]}

    yield "a profile of another agent", 6, vault.signed(**profile("claude-code", vault.bundles["hello", 1]))
    yield "a profile with a skill that the catalog does not list", 6, vault.signed(**profile("codex", vault.bundles["old", 1]))


def answers(vault):
    """Name, exit and the answers of each host that is wrong in how it answers: by path, status, headers and body."""
    file = vault.file(vault.catalogs[2])
    problem = lambda status, code: (status, {}, compact({"type": "about:blank", "title": "Refused", "status": status, "code": code, "detail": code, "request_id": "0"}))
    current = lambda **members: {"devices/current": (200, {}, lambda device: compact({**device, **members}))}
    catalog = {"sha256": sha256(file), "size": len(file), "release": 3}
    yield "a redirect", 7, {"catalog.json": (302, {"Location": f"{vault.base}/v/acme/catalog.json?"}, b"")}
    yield "a content encoding", 7, {"catalog.json": (200, {"Content-Encoding": "gzip"}, file)}
    yield "a catalog beyond the ceiling", 7, {"catalog.json": (200, {}, file + b" " * (4 * MIB))}
    yield "no catalog where there was one", 6, {**current(catalog=None), "catalog.json": problem(404, "catalog_not_published")}
    yield "404 where there was a catalog", 6, {"catalog.json": problem(404, "catalog_not_published")}
    yield "a machine that is revoked", 4, current(status="revoked")
    yield "an unknown machine", 4, {"devices/current": problem(401, "device_unknown")}
    yield "a clock that is off", 4, {"devices/current": problem(401, "timestamp_out_of_range")}
    yield "a vault that is not paid for", 8, {"catalog.json": problem(402, "subscription_lapsed")}
    yield "too many requests", 7, {"catalog.json": problem(429, "rate_limited")}
    yield "a service that is down", 7, {"catalog.json": problem(503, "unavailable")}
    yield "an answer that is no JSON", 7, {"devices/current": (200, {}, b"<html>")}
    # The last one: a machine that waits may take the catalog.
    yield "a machine that waits", 4, current(status="pending", catalog=catalog)


def first_contact(vault):
    """Name, exit and catalog file of hosts that a machine meets which knows nothing of the vault yet."""
    yield "the roots cut to version 1", 6, vault.file(vault.catalogs[2], roots=vault.roots[:1])
    yield "the roots without version 1", 6, vault.file(vault.catalogs[2], roots=vault.roots[1:])
    yield "version 1 signed by another key", 6, vault.file(vault.catalogs[2], roots=[{**vault.roots[0], "signatures": vault.root(1, None, *[{"threshold": 1, "keys": vault.keys("anna")}] * 2, ["carl"])["signatures"]}])
    yield "one signature of two, at first contact", 6, vault.file(vault.catalogs[2], ["anna"])
    yield "over, at first contact", 3, vault.signed(issued_at=vault.at(-90), expires_at=vault.at(-1))


# Addresses that a client refuses before it sends anything.
ADDRESSES = ["http://vault.example/v/acme", "http://10.0.0.1/v/acme", "https://user@vault.example/v/acme", "https://vault.example/v/acme?x",
             "https://vault.example/v/acme#x", "https://vault.example/v/ac%6de", "ftp://vault.example/v/acme", "https://vault.example/acme"]


def every(base, now, secrets):
    """The vault, and all its wrong hosts: name, exit, file and answers."""
    vault = Vault(base, now, secrets)
    hosts = [SimpleNamespace(name=name, exit=code, file=file, answers={}) for name, code, file in files(vault)]
    hosts += [SimpleNamespace(name=name, exit=code, file=vault.file(vault.catalogs[2]), answers=given) for name, code, given in answers(vault)]
    return vault, hosts, [SimpleNamespace(name=name, exit=code, file=file) for name, code, file in first_contact(vault)]

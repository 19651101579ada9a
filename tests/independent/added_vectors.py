"""Writes the vectors that taking out one check at a time asked for: tests/vectors/ed25519.json, and cases at the ends of other files. It uses the
test keys and no randomness, so a second run changes nothing."""

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import base64
import json

from reader import D, L, P, SMALL_ORDER, VECTORS, Y8, add, base32, canonical, fingerprint, key_bytes, sha256, times

secret_of = lambda name: hashlib.sha256(f"vault test {name}".encode()).digest()
little = lambda number: number.to_bytes(32, "little")
BASE = (15112221349535400772501151409588531511454012693041857206046113283949847762202, 46316835694926478169428394003475163141307993866256225615783033603165251855960)


def encoded(point, sign=None):
    return little(point[1] | (point[0] & 1 if sign is None else sign) << 255)


def point_of(y):
    """A point with this y, if there is one."""
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    return (x, y) if (x * x - xx) % P == 0 else None


def key_cases():
    anna = Ed25519PrivateKey.from_private_bytes(secret_of("anna")).public_key().public_bytes_raw()
    yield None, "the key of anna", anna, True
    for name, raw in (("the neutral element", little(1)), ("order 2", little(P - 1)), ("order 4", little(0)), ("order 4, the other", bytes(31) + b"\x80"),
                      *((f"order 8, {place}", raw) for place, raw in enumerate(sorted(SMALL_ORDER)[-6:], 1) if raw[0] in (0x26, 0xc7))):
        yield "K4", name, raw, False
    yield "K3", "the neutral element with the highest bit set", bytes([1]) + bytes(30) + b"\x80", False
    yield "K3", "order 2 with the highest bit set", b"\xec" + b"\xff" * 31, False
    for over in range(19):
        point = point_of(over)
        yield "K2", f"y = p + {over}: {'a point' if point else 'no point'} when it is reduced", little(P + over), False
    for y in (2, 7, 11):
        if not point_of(y):
            yield "K5", f"y = {y}: no point of the curve", little(y), False
    good = point_of(int.from_bytes(anna, "little") % 2**255)
    good = good if good[0] & 1 == anna[31] >> 7 else (P - good[0], good[1])
    two, four = (0, P - 1), point_of(0)
    for name, other in (("order 2", two), ("order 4", four), ("order 8", point_of(Y8))):
        yield "K5", f"the key of anna plus a point of {name}", encoded(add(good, other)), False


def signature_cases():
    seed = hashlib.sha512(secret_of("anna")).digest()
    scalar = int.from_bytes(seed[:32], "little") & ~7 & ~(1 << 255) | 1 << 254
    public, message = encoded(times(scalar, BASE)), b"a message"
    hashed = lambda r, a=public: int.from_bytes(hashlib.sha512(r + a + message).digest(), "little")
    signature = Ed25519PrivateKey.from_private_bytes(secret_of("anna")).sign(message)
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    yield None, "as RFC 8032 says", signature, True
    yield "S1", "63 bytes", signature[:63], False
    yield "S1", "65 bytes", signature + b"\0", False
    yield "S2", "S + L", r + little(s + L), False
    yield "S2", "S + 2 L", r + little(s + 2 * L), False
    yield "S2", "S = L", r + little(L), False
    for place, small in enumerate(sorted(SMALL_ORDER)):
        # With the neutral element as R the equation of S4 holds; with the others only the one with the cofactor does.
        yield "S3", f"R of small order, {place + 1}: {'S4 holds' if small == little(1) else 'S4 does not hold'}", small + little(hashed(small) * scalar % L), False
    yield "S4", "a bit of S", r + little(s ^ 1), False
    nonce = int.from_bytes(hashlib.sha256(b"a nonce of a test").digest(), "little") % L
    mixed = encoded(add(times(nonce, BASE), (0, P - 1)))
    yield "S4", "R with a part of order 2: only the equation with the cofactor holds", mixed + little((nonce + hashed(mixed) * scalar) % L), False
    over = bytes([0xee]) + b"\xff" * 30 + b"\x7f"
    yield "S4", "R is the neutral element, encoded as p + 1", over + little(hashed(over) * scalar % L), False


def write_ed25519():
    anna = Ed25519PrivateKey.from_private_bytes(secret_of("anna")).public_key().public_bytes_raw()
    keys = [{"check": check, "why": why, "bytes": raw.hex(), "good": good} for check, why, raw, good in key_cases()]
    signatures = [{"check": check, "why": why, "key": anna.hex(), "message": b"a message".hex(), "signature": raw.hex(), "good": good} for check, why, raw, good in signature_cases()]
    text = base64.urlsafe_b64encode(anna).decode().rstrip("=")
    texts = [(None, text), (None, text[:-1] + "4")] + [("K1", one) for one in (text + "=", text[:-1], text + "A", text[:-1] + chr(ord(text[-1]) + 1), "+" + text[1:], " " + text, text + "\n", "")]
    about = "Keys and signatures one by one, named after the checks of docs/formats.md, Ed25519. The secret key is the test key anna of roots/keys.json."
    whole = {"about": about, "keys": keys, "texts": [{"check": check, "text": one, "good": not check} for check, one in texts if check or one == text], "signatures": signatures}
    (VECTORS / "ed25519.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def envelope(kind, payload, *names):
    message = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
    entries = []
    for name in names:
        secret = Ed25519PrivateKey.from_private_bytes(secret_of(name))
        entries.append({"keyid": sha256(secret.public_key().public_bytes_raw()), "sig": base64.b64encode(secret.sign(message)).decode()})
    return {"payloadType": kind, "payload": base64.b64encode(payload).decode(), "signatures": entries}


def add_cases(file, cases, **also):
    path = VECTORS / file
    whole = json.loads(path.read_bytes())
    new = {case["id"] for case in cases}
    whole["cases"] = [case for case in whole["cases"] if case.get("id") not in new] + cases
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n")


CATALOG_TYPE, MANIFEST_TYPE = "application/vnd.vault.catalog.v2+json", "application/vnd.vault.skill-manifest.v2+json"


def format_cases():
    """Changes to catalog 42 and to the manifest, signed again with the right key."""
    file = json.loads((VECTORS / "formats/catalog-42.json").read_bytes())
    good = json.loads(base64.b64decode(file["payload"]))
    gone = lambda n: {"name": "gone", "bundle_hash": f"{n:064x}", "reason": "", "since_release": 1}
    changes = [("release 0", {"release": 0}, "catalog_schema"), ("two profiles of one name", {"profiles": good["profiles"] * 2}, "catalog_schema"),
               ("a profile without a name", {"profiles": [{**good["profiles"][0], "name": ""}]}, "catalog_schema"),
               ("a bundle withdrawn twice", {"withdrawn": [gone(1), gone(1)]}, "catalog_schema"),
               ("U+0000 in a reason", {"withdrawn": [{**gone(1), "reason": "a\0b"}]}, "catalog_schema"),
               ("1,001 withdrawn bundles", {"withdrawn": [gone(n) for n in range(1001)]}, "catalog_withdrawn"),
               ("a skill of version 0", {"skills": [{**one, "version": 0} for one in good["skills"]]}, "catalog_schema"),
               ("expires_at a day before issued_at", {"issued_at": "2026-11-22T02:00:00Z", "expires_at": "2026-11-21T02:00:00Z"}, "catalog_clock"),
               ("a slug in upper case", {"slug": "Acme"}, "catalog_schema"),
               ("the second 60", {"issued_at": "2026-11-21T01:59:60Z"}, "catalog_schema"),
               ("U+200B in the name of a profile", {"profiles": [{**good["profiles"][0], "name": "a\u200bb"}]}, "catalog_schema"),
               ("a policy of 4,194,305 bytes", {"policy": {**good["policy"], "size": 4194305}}, "catalog_schema")]
    for place, (what, change, error) in enumerate(changes, 1):
        whole = {"public_key": file["public_key"], "roots": file["roots"], **envelope(CATALOG_TYPE, canonical({**good, **change}), "release 0")}
        yield {"id": f"catalog-more-{place}", "kind": "catalog", "file": "catalog-42.json", "change": what, "context": {}, "error": error, "bytes": canonical(whole).decode()}
    manifest = json.loads(base64.b64decode(json.loads((VECTORS / "formats/manifest.dsse.json").read_bytes())["payload"]))
    changes = [("version 0 where version 0 is expected", {"version": 0}, "manifest_version", {"version": 0, "stored_version": 0}),
               ("U+200B in frontmatter_name", {"frontmatter_name": "code\u200breview"}, "manifest_name", {}),
               ("U+200B in the description of an action", {"actions": {"check": {**manifest["actions"]["check"], "description": "a\u200bb"}}}, "manifest_actions", {}),
               *((f"the revision {given!r}", {"provenance": {**manifest["provenance"], "revision": given}}, "manifest_provenance", {}) for given in ("", "-")),
               ("an agent id in upper case", {"agents": ["Codex"]}, "manifest_schema", {}),
               ("1,025 files", {"files": [*manifest["files"], *({"path": f"n{n:04}", "size": 0, "sha256": sha256(b""), "mode": "0644"} for n in range(1025 - len(manifest["files"])))]}, "manifest_files", {})]
    for place, (what, change, error, context) in enumerate(changes, 1):
        whole = canonical(envelope(MANIFEST_TYPE, canonical({**manifest, **change}), "release 0")).decode()
        yield {"id": f"manifest-more-{place}", "kind": "manifest", "file": "manifest.dsse.json", "change": what, "context": context, "error": error, "bytes": whole}
    name = "index-d5220c4acec69fcb03020aa0f346d1c2a56e55eb68957287ce8b443f827bc35e.json"
    index = json.loads((VECTORS / "formats" / name).read_bytes())
    index["skills"][0]["actions"] = ["Check"]
    yield {"id": "index-more-1", "kind": "index", "file": name, "change": "an action name in upper case", "context": {}, "error": "index_schema", "bytes": canonical(index).decode()}
    name = "profile-9941aaadc5a965400d4e7041bc966ea043455d4e72b58405aa69c4d4954bce39.json"
    profile = json.loads((VECTORS / "formats" / name).read_bytes())
    for place, (what, given) in enumerate((("no name", ""), ("a name of 65 code points", "\u00e9" * 65), ("U+200B in the name", "a\u200bb")), 1):
        yield {"id": f"profile-more-{place}", "kind": "profile", "file": name, "change": what, "context": {}, "error": "profile_schema", "bytes": canonical({**profile, "name": given}).decode()}


def draft_cases():
    """Changes to the one file of a proposal."""
    name = "draft-propose.json"
    draft = json.loads((VECTORS / "formats" / name).read_bytes())
    text = draft["files"][0]["content"]
    changes = [("an encoding that only bundles have", {"encoding": "parts"}, "draft_schema"), ("text in base64", {"encoding": "base64", "content": base64.b64encode(text.encode()).decode()}, "draft_files"),
               ("U+0000 in utf-8", {"content": text + "\0"}, "draft_files"),
               ("base64 without its padding", {"encoding": "base64", "content": base64.b64encode(b"\0").decode().rstrip("=")}, "draft_files")]
    for place, (what, change, error) in enumerate(changes, 1):
        whole = canonical({**draft, "files": [{**draft["files"][0], **change}]}).decode()
        yield {"id": f"draft-more-{place}", "kind": "draft", "file": name, "change": what, "context": {"current_bundle_hash": None}, "error": error, "bytes": whole}


def accepted_cases():
    """Catalog 42 with what a reader ignores, and with a large policy."""
    file = json.loads((VECTORS / "formats/catalog-42.json").read_bytes())
    good = json.loads(base64.b64decode(file["payload"]))
    parts = lambda payload: {"public_key": file["public_key"], "roots": file["roots"], **envelope(CATALOG_TYPE, payload, "release 0")}
    twice = canonical(good)[:-1] + b',"x":1,"x":{"x":1,"x":2}}'
    cases = [("an unknown member of the file is 1.5", canonical(good), canonical({**parts(canonical(good)), "x": 1.5})),
             ("an unknown member of the payload stands there twice", twice, canonical(parts(twice))),
             ("the policy has 2 MiB", large := canonical({**good, "policy": {**good["policy"], "size": 2 << 20}}), canonical(parts(large)))]
    for place, (why, payload, whole) in enumerate(cases, 1):
        result = {"public_key": file["public_key"], "root_version": 1, "stored": {"release": 42, "payload_sha256": sha256(payload)}}
        yield {"id": f"accept-more-{place}", "kind": "catalog", "file": "catalog-42.json", "why": why, "context": {}, "result": result, "bytes": whole.decode()}


def write_roots():
    """A version 1 whose revoked text is no key, beside the others."""
    path = VECTORS / "roots/roots.json"
    first = json.loads(path.read_bytes())["a1"]
    payload = canonical({**json.loads(base64.b64decode(first["payload"])), "revoked": ["A" * 42]})
    entry = canonical(envelope(first["payloadType"], payload, "anna")).decode()
    lines = [line.rstrip(",") for line in path.read_text().splitlines()[1:-1] if not line.startswith(' "bad-revoked-text"')]
    path.write_text("{\n" + ",\n".join([*lines, f' "bad-revoked-text": {entry}']) + "\n}\n")


def root_cases():
    """The end of a root version, for a clock that was set back."""
    cases = json.loads((VECTORS / "roots/negative.json").read_bytes())["cases"]
    late, = (case for case in cases if case["id"] == "n316")
    state = {**late["state"], "now": "2026-12-31T23:59:59Z", "latest_seen_at": "2027-01-01T00:00:01Z"}
    yield {**late, "id": "n318", "what": "the newest root ended before the latest time seen, by the clock of now it did not", "state": state, "result": "catalog_clock", "exit": 6}
    yield {"id": "n319", "section": "2 revoked", "what": "a revoked text of 42 characters", "do": "chain", "state": {}, "input": {"roots": ["bad-revoked-text"]}, "result": "root_invalid",
           "exit": 6}


def write_key_requests():
    """A key request of bob for the vault of roots/root-a1.json, and what must be refused."""
    kind = "application/vnd.vault.key-request.v1+json"
    roots = json.loads((VECTORS / "roots/roots.json").read_bytes())
    vault, slug = "vlt_" + base32(base64.b64decode(roots["a1"]["payload"]))[:26], "acme"
    bob = base64.urlsafe_b64encode(Ed25519PrivateKey.from_private_bytes(secret_of("bob")).public_key().public_bytes_raw()).decode().rstrip("=")
    payload = {"schema": "vault.key-request/1", "vault_id": vault, "slug": slug, "public_key": bob, "name": "bob", "requested_at": "2026-11-22T09:00:00Z"}
    good = canonical(envelope(kind, canonical(payload), "bob"))
    (VECTORS / "formats/key-request.json").write_bytes(good)
    changed = lambda **members: canonical(envelope(kind, canonical({**payload, **members}), "bob"))
    other = "vlt_" + base32(b"other")[:26]
    cases = [("Q1", "4,097 bytes", good + b" " * (4097 - len(good)), vault, slug), ("Q1", "the payload type of a root", canonical(envelope("application/vnd.vault.root.v1+json", canonical(payload), "bob")), vault, slug),
             ("Q2", "schema 2", changed(schema="vault.key-request/2"), vault, slug), ("Q2", "a name that is a fingerprint", changed(name=fingerprint("pub", key_bytes(bob))), vault, slug),
             ("Q3", "signed by another key", canonical(envelope(kind, canonical(payload), "carl")), vault, slug), ("Q3", "the keyid of bob over the signature of carl", good.replace(
                 envelope(kind, canonical(payload), "bob")["signatures"][0]["sig"].encode(), envelope(kind, canonical(payload), "carl")["signatures"][0]["sig"].encode()), vault, slug),
             ("Q4", "for another vault", good, other, slug), ("Q4", "for another slug", good, vault, "other")]
    listed = [{"check": None, "why": "as the page says", "bytes": good.decode(), "vault_id": vault, "slug": slug, "good": True},
              {"check": None, "why": "4,096 bytes", "bytes": (good + b" " * (4096 - len(good))).decode(), "vault_id": vault, "slug": slug, "good": True}]
    listed += [{"check": check, "why": why, "bytes": data.decode(), "vault_id": vault_id, "slug": slug_given, "good": False} for check, why, data, vault_id, slug_given in cases]
    about = "Key requests for a reader with this vault id and slug; each is accepted, or refused by the check Q1 to Q4 of docs/formats.md. Signed with the test keys of roots/keys.json."
    (VECTORS / "formats/key-requests.json").write_text(json.dumps({"about": about, "cases": listed}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_key_requests()
    write_ed25519()
    add_cases("formats/accept.json", [*accepted_cases()])
    add_cases("formats/negative.json", [*format_cases(), *draft_cases()])
    write_roots()
    add_cases("roots/negative.json", [*root_cases()])

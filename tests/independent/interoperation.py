"""Holds other programs to the same signatures: securesystemslib to the envelopes, the OpenSSL command line to the walk of docs/formats.md, and
python-tuf to the mapping of that page. `interoperation.py` takes some seconds."""

import base64
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.dsse import Envelope as Dsse
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey
from tuf.api.exceptions import DownloadHTTPError, RepositoryError
from tuf.api.metadata import Metadata, MetaFile, Role, Root, Snapshot, TargetFile, Targets, Timestamp
from tuf.ngclient import Updater
from tuf.ngclient.fetcher import FetcherInterface

from reader import VECTORS, Refused, key_bytes, keyid, seconds
from vectors import FORMATS, KEYS, ROOTS, compact, envelope_of, fetch, read

ROOT = VECTORS.parent.parent
KEYS.update(read(FORMATS / "keys.json"))
SECRETS = {one["public_key"]: bytes.fromhex(one["seed_hex"]) for one in KEYS.values() if "seed_hex" in one}
wrong = []


def expect(what, got, wanted):
    if got != wanted:
        wrong.append(what)
        print(f"failed  {what}: {got!r} instead of {wanted!r}")


# --- securesystemslib -----------------------------------------------------------------------------


def library_key(public_key):
    return SSlibKey(keyid(public_key), "ed25519", "ed25519", {"public": key_bytes(public_key).hex()})


LIBRARY_KEYS = [library_key(public_key) for public_key in SECRETS]


def counted(envelope):
    """The keys that have a valid signature on this envelope."""
    found, dsse = set(), Dsse.from_dict(copy.deepcopy(envelope))
    for one in LIBRARY_KEYS:
        try:
            found |= {*dsse.verify([one], 1)}
        except VerificationError:
            continue
    return found


def every_envelope():
    """The envelopes of the vectors that pass E1 to E5, by name."""
    for folder in (ROOTS, FORMATS):
        named_envelopes = {**read(folder / "roots.json"), **(read(ROOTS / "releases.json") if folder == ROOTS else {})}
        named_envelopes.update({path.name: read(path) for path in folder.glob("catalog-*.json")})
        named_envelopes.update({path.name: read(path)["manifest"] for path in folder.glob("bundle-*.json")})
        for name, envelope in named_envelopes.items():
            try:
                yield f"{folder.name} {name}", envelope, envelope_of(envelope)
            except Refused:
                continue


def with_securesystemslib():
    """Each key counts on each envelope for both or for neither; with one more byte in the payload, no key counts."""
    envelopes, signatures = 0, 0
    for name, envelope, ours in every_envelope():
        good = {keyid(public_key) for public_key in ours.signers(SECRETS)}
        envelopes, signatures = envelopes + 1, signatures + len(good)
        expect(name, counted(envelope), good)
        payload = base64.b64decode(envelope["payload"])
        turned = {**envelope, "payload": base64.b64encode(payload + b" ").decode()}
        expect(f"{name}, one more byte", counted(turned), set())
    expect("at least 300 signatures count", signatures >= 300, True)
    return f"securesystemslib: the same {signatures} signatures of {envelopes} envelopes"


# --- the OpenSSL command line ---------------------------------------------------------------------


def chapter(heading):
    page = (ROOT / "docs/formats.md").read_text()
    return page.split(f"\n### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]


def walk(script, *arguments):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["sh", "-c", script, "walk", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def altered(name, change):
    file = read(ROOTS / name)
    change(file)
    return compact(file)


def turn(file, *names):
    """Turns one bit of the payload of this envelope."""
    for one in names:
        file = file[one]
    payload = bytearray(base64.b64decode(file["payload"]))
    payload[-10] ^= 1
    file["payload"] = base64.b64encode(payload).decode()


def with_openssl():
    """The walk of the page prints what the page shows, and refuses what is not signed as it must be."""
    text = chapter("The same with OpenSSL")
    script, shown = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL)[1] for kind in ("sh", "text"))
    expect("the walk of the page", walk(script), (0, shown))
    two = "catalog-t43-under-a4-threshold-2.json"
    refusals = [
        ("the payload of root version 3", lambda file: turn(file, "roots", 2), "root version 3: the keys of the version before"),
        ("root version 2 left out", lambda file: file["roots"].pop(1), "root version 2: the keys of the version before"),
        ("root version 4 left out", lambda file: file["roots"].pop(3), "release: another root version"),
        ("root version 1 alone", lambda file: file.update(roots=file["roots"][:1]), "release: another root version"),
        ("root version 2 by its own key alone", lambda file: file["roots"][1]["signatures"].pop(0), "root version 2: the keys of the version before"),
        ("root version 2 without its own key", lambda file: file["roots"][1]["signatures"].pop(1), "root version 2: its own keys"),
        ("the payload of the release", turn, "release: its keys"),
        ("one signature where two are needed", lambda file: file["signatures"].pop(), "release: its keys"),
        ("one signature under two names", lambda file: file["signatures"][1].update(sig=file["signatures"][0]["sig"]), "release: its keys"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "catalog.json"
        for what, change, reason in refusals:
            place.write_bytes(altered(two, change))
            code, said = walk(script, place)
            expect(f"OpenSSL, {what}", (code, said.splitlines()[-1:]), (1, [f"refused: {reason}"]))
    code, said = walk(script, ROOTS / two, "0" * 64)
    expect("OpenSSL, another pin", (code, said.splitlines()[-1:]), (1, ["refused: root version 1: another vault"]))
    return f"OpenSSL: the walk, and {len(refusals) + 1} refusals"


# --- python-tuf -----------------------------------------------------------------------------------

FAR = datetime(9999, 12, 31, tzinfo=timezone.utc)
NOW = datetime.now(timezone.utc).replace(microsecond=0)
ONLINE = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)  # signs the two roles that vault does not have
ONLINE_KEY = SSlibKey("online", "ed25519", "ed25519", {"public": ONLINE.public_key().public_bytes_raw().hex()})
ROLE_OF = {"root": "root", "targets": "release"}


def signed(part, keys):
    """The metadata of this part, signed by these keys of the vectors, or by the online key."""
    metadata = Metadata(part)
    for public_key in keys or [None]:
        secret = Ed25519PrivateKey.from_private_bytes(SECRETS[public_key]) if public_key else ONLINE
        metadata.sign(CryptoSigner(secret, library_key(public_key) if public_key else ONLINE_KEY), append=True)
    return metadata.to_bytes()


def root_metadata(doc):
    roles = {name: Role([keyid(one) for one in doc[role]["keys"]], doc[role]["threshold"]) for name, role in ROLE_OF.items()}
    roles |= {name: Role(["online"], 1) for name in ("snapshot", "timestamp")}
    keys = {keyid(one["public_key"]): library_key(one["public_key"]) for one in doc["keys"]} | {"online": ONLINE_KEY}
    rest = {name: doc[name] for name in ("schema", "vault_id", "previous_sha256", "issued_at", "expires_at", "revoked")}
    names = {keyid(one["public_key"]): one["name"] for one in doc["keys"]}
    return Root(doc["version"], None, FAR, keys, roles, True, {"x-vault": {**rest, "names": names}})


def root_document_of(root):
    """The root document that this metadata was made from."""
    rest = dict(root.unrecognized_fields["x-vault"])
    names, public = rest.pop("names"), lambda one: base64.urlsafe_b64encode(bytes.fromhex(root.keys[one].keyval["public"])).decode().rstrip("=")
    roles = {role: {"threshold": root.roles[name].threshold, "keys": sorted(map(public, root.roles[name].keyids))} for name, role in ROLE_OF.items()}
    keys = sorted(({"public_key": public(one), "name": name} for one, name in names.items()), key=lambda entry: entry["public_key"])
    return {**rest, "version": root.version, "keys": keys, **roles}


def target(name, entry, custom):
    sha = entry.get("bundle_hash") or entry["sha256"]
    return TargetFile(entry["size"], {"sha256": sha}, name, {"custom": custom} if custom else None)


def targets_metadata(catalog):
    found = [target(f"skills/{one['name']}", one, {"version": one["version"]}) for one in catalog["skills"]]
    found += [target(f"index/{place}", one, None) for place, one in enumerate(catalog["index"])]
    found += [target(f"profiles/{one['name']}", one, {"agent": one["agent"]}) for one in catalog["profiles"]]
    found += [target("policy", catalog["policy"], None)] if catalog["policy"] else []
    rest = {name: value for name, value in catalog.items() if name not in ("release", "skills", "index", "profiles", "policy")}
    life = timedelta(seconds=seconds(catalog["expires_at"]) - seconds(catalog["issued_at"]))
    return Targets(catalog["release"], None, NOW + life, {one.path: one for one in found}, None, {"x-vault": rest})


def catalog_of(targets):
    """The payload of the catalog that this metadata was made from."""
    def entries(folder, member):
        for path, one in targets.targets.items():
            if path.startswith(folder):
                sha = one.hashes["sha256"]
                yield {**member(path[len(folder):]), "bundle_hash": sha, "path": f"bundles/{sha}.json", "size": one.length, **one.unrecognized_fields.get("custom", {})}
    policy = targets.targets.get("policy")
    return {**targets.unrecognized_fields["x-vault"], "release": targets.version, "skills": [*entries("skills/", lambda name: {"name": name})],
            "index": [*entries("index/", lambda name: {})], "profiles": [*entries("profiles/", lambda name: {"name": name})],
            "policy": policy and {"sha256": policy.hashes["sha256"], "size": policy.length}}


def repository(docs, catalog, signers):
    """The files of a TUF repository for this release, by their addresses."""
    files = {}
    for place, doc in enumerate(docs):
        keys = {*docs[max(place - 1, 0)]["root"]["keys"], *doc["root"]["keys"]}
        files[f"root/{place + 1}.root.json"] = signed(root_metadata(doc), sorted(keys))
    targets = targets_metadata(catalog)
    files[f"root/{targets.version}.targets.json"] = signed(targets, signers)
    files[f"root/{targets.version}.snapshot.json"] = signed(Snapshot(targets.version, None, FAR, {"targets.json": MetaFile(targets.version)}), [])
    files["root/timestamp.json"] = signed(Timestamp(targets.version, None, FAR, MetaFile(targets.version)), [])
    for path, one in targets.targets.items():
        folder, _, name = path.rpartition("/")
        sha = one.hashes["sha256"]
        files["/".join(["objects", *([folder] if folder else []), f"{sha}.{name}"])] = fetch(sha, one.length)
    return files


class Files(FetcherInterface):
    def __init__(self, files):
        self.files = files

    def _fetch(self, url):
        name = url.removeprefix("vault://")
        if name not in self.files:
            raise DownloadHTTPError("not there", 404)
        yield self.files[name]


def read_back(files):
    """What python-tuf takes from the repository: all root documents, the catalog, the objects."""
    with tempfile.TemporaryDirectory() as folder:
        updater = Updater(folder, "vault://root/", folder, "vault://objects/", Files(files), bootstrap=files["root/1.root.json"])
        updater.refresh()
        trusted = updater._trusted_set
        docs = [root_document_of(Metadata.from_bytes(files[f"root/{place}.root.json"]).signed) for place in range(1, trusted.root.version + 1)]
        objects = {name: Path(updater.download_target(one, f"{folder}/object")).read_bytes() for name, one in trusted.targets.targets.items()}
        return docs, catalog_of(trusted.targets), objects


def refused_by_tuf(files):
    try:
        read_back(files)
    except RepositoryError as refusal:
        return type(refusal).__name__
    return "nothing"


def mapped(name, folder):
    """A release of the vectors, there and back, and what python-tuf refuses of it."""
    file = read(folder / name)
    docs, catalog = ([json.loads(base64.b64decode(one["payload"])) for one in part] for part in (file["roots"], [file]))
    catalog, role = catalog[0], docs[-1]["release"]
    files = repository(docs, catalog, role["keys"])
    objects = {path: fetch(one.hashes["sha256"], one.length) for path, one in targets_metadata(catalog).targets.items()}
    got = read_back(files)
    for what, mine, theirs in zip(("root documents", "catalog", "objects"), (docs, catalog, objects), got):
        expect(f"python-tuf, {name}, {what}", theirs, mine)
    one = next(path for path in files if path.startswith("objects/skills/"))
    expect(f"python-tuf, {name}, a byte of a skill", refused_by_tuf({**files, one: b"x" + files[one][1:]}), "LengthOrHashMismatchError")
    short = repository(docs, catalog, role["keys"][:role["threshold"] - 1] or [KEYS["stranger"]["public_key"]])
    expect(f"python-tuf, {name}, too few signatures", refused_by_tuf(short), "UnsignedMetadataError")
    if len(docs) > 1:
        stripped = json.loads(files["root/2.root.json"])
        stripped["signatures"] = [one for one in stripped["signatures"] if one["keyid"] not in map(keyid, docs[0]["root"]["keys"])]
        expect(f"python-tuf, {name}, a root without the keys before", refused_by_tuf({**files, "root/2.root.json": json.dumps(stripped).encode()}), "UnsignedMetadataError")


def with_tuf():
    mapped("catalog-t43-under-a4-threshold-2.json", ROOTS)
    mapped("catalog-46-chain.json", FORMATS)
    return "python-tuf: two releases there and back"


if __name__ == "__main__":
    for part in (with_securesystemslib, with_openssl, with_tuf):
        print(part())
    print("all well" if not wrong else f"{len(wrong)} otherwise than expected")
    sys.exit(1 if wrong else 0)

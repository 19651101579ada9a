"""A reader of vault's formats, written from docs/formats.md alone. A check has the name that the
page gives it, and mutations.py takes it out by that. tests/vectors/tables.json has the tables."""

import base64
import hashlib
import json
import re
import unicodedata
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
GIVEN = json.loads((VECTORS / "tables.json").read_bytes())
TABLES, INTEGERS = GIVEN["tables"], GIVEN["integers"]
TYPES = {name: re.compile(form) for name, form in GIVEN["types"].items()}
ERRORS = {check: error for error, checks in GIVEN["errors"].items() for check in checks}
MIB, DAY, PART_BYTES = 1 << 20, 86400, 3_000_000
HEAD = b'{"schema":"vault.bundle/1","manifest":'
OFF = set()  # the checks that are taken out


class Refused(Exception):
    """The error of a refusal; None until the object is known that was being read."""


def need(check, holds, error=None):
    """Refuses what does not hold, with this error or the one that the check has."""
    if not holds and check not in OFF:
        raise Refused(error or ERRORS.get(check) or ERRORS.get(check.split()[0]))


@contextmanager
def refusing(error):
    """Gives the error of this object to refusals inside that have none yet."""
    try:
        yield
    except Refused as refusal:
        raise Refused(refusal.args[0] or error) from None


# --- JSON and tables ------------------------------------------------------------------------------
class Pairs(list):
    """The members of a JSON object in their order, repetitions included."""


def number(digits):
    """An int if J7 allows it, else a float, which no kind of a table is."""
    good = re.fullmatch("0|[1-9][0-9]{0,15}", digits) and int(digits) < 2**53
    return int(float(digits)) if good or "J7" in OFF else float(digits)


# int() refuses NaN and Infinity, which are no JSON.
DECODER = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=number, parse_float=number,
                           parse_constant=int)
ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=vars)


def walk(value, depth, signed):
    """J3, J4 and J7, which also hold for members that no table has."""
    need("J3", not isinstance(value, list) or depth <= 32)
    need("J4", not isinstance(value, str) or not re.search("[\ud800-\udfff]", value))
    need("J7", not isinstance(value, float) or not signed)
    for part in value if isinstance(value, (list, tuple)) else ():
        walk(part, depth if isinstance(part, tuple) else depth + 1, signed)


def parse(data, kind, error, signed=True):
    """The value that these bytes are: of a kind for `read`, or what a function makes of it."""
    with refusing(error):
        text = data.decode("utf-8-sig", "replace")
        need("J1", text.encode() == data)
        text = text.lstrip(" \t\n\r")
        try:
            value, end = DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            raise Refused(error) from None
        need("J2", type(value) is Pairs and not text[end:].strip(" \t\n\r"))
        walk(value, 1, signed)
        return kind(value) if callable(kind) else read(kind, value)


def read(kind, value, place=""):
    """The value, if it is of this kind of tables.json. An object becomes a namespace, in which an
    optional member that is absent is None. `place` is the name of the member that it is."""
    kind = TABLES.get(kind, kind) if isinstance(kind, str) else kind
    if isinstance(kind, str):
        return value if kind == "any" else read_scalar(kind, value)
    if "or null" in kind:
        return None if value is None else read(kind["or null"], value, place)
    if "list" in kind:
        need("J6 list", type(value) is list)
        values = [read(kind["list"], one) for one in value]
        need(f"{place} count", kind.get("least", 0) <= len(values) <= kind.get("most", len(values)))
        for rule in {"sorted", "unique"} & {*kind}:
            texts = values if kind[rule] is True else [vars(one)[kind[rule]] for one in values]
            expected = texts if rule == "sorted" else sorted(texts)
            need(f"{place} {rule}", expected == sorted({*texts}))
        return values
    need("J6 object", type(value) is Pairs)
    if "map" in kind:
        need("J5 map", len({name for name, _ in value}) == len(value))
        return {read(kind["names"], name): read(kind["map"], member) for name, member in value}
    found, result = {}, SimpleNamespace(**dict.fromkeys(kind))
    for name, member in value:
        need("J5", name not in found or name not in kind)
        found[name] = member
    for name, one in kind.items():
        optional = "optional" in one
        need("J8", name in found or optional)
        if name in found:
            setattr(result, name, read(one["optional"] if optional else one, found[name], name))
    return result


def read_scalar(kind, value):
    need("J6", type(value) is {"true or false": bool}.get(kind, int if kind in INTEGERS else str))
    need("J9", kind[0] != "=" or value == kind[1:])
    need(kind, kind not in TYPES or TYPES[kind].fullmatch(value))
    need(kind, kind not in INTEGERS or INTEGERS[kind][0] <= value <= INTEGERS[kind][1])
    return check_key(value) if kind == "key" else value


def seconds(time):
    """Since the year 0000, whose calendar repeats in 400 years."""
    year, *rest = map(int, re.findall("[0-9]+", time))
    since = datetime(2000 + year % 400, *rest) - datetime(2000, 1, 1)
    return since.total_seconds() + year // 400 * 146097 * DAY


# --- keys, signatures and envelopes ---------------------------------------------------------------
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
# The points of order 1, 2, 4 and 8: their y, and the sign of their x.
Y8 = 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826
SMALL_ORDER = {(y | sign << 255).to_bytes(32, "little") for y, sign in (
    (1, 0), (P - 1, 0), (0, 0), (0, 1), (Y8, 0), (Y8, 1), (P - Y8, 0), (P - Y8, 1))}


def add(a, b):
    k = D * a[0] * b[0] * a[1] * b[1] % P
    return ((a[0] * b[1] + b[0] * a[1]) * pow(1 + k, -1, P) % P,
            (a[1] * b[1] + a[0] * b[0]) * pow(1 - k, -1, P) % P)


def times(n, a):
    result = (0, 1)
    while n:
        result, a, n = (add(result, a) if n & 1 else result), add(a, a), n >> 1
    return result


@lru_cache(None)
def check_key(key):
    """K2 to K5. Returns the key."""
    y, sign = int.from_bytes(key_bytes(key), "little") % 2**255, key_bytes(key)[31] >> 7
    need("K2", y < P)
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    need("K5 point", (x * x - xx) % P == 0)
    need("K3", x or not sign)
    point = (x if x & 1 == sign else P - x, y)
    need("K4", times(8, point) != (0, 1))
    need("K5 order", times(8, point) == (0, 1) or times(L, point) == (0, 1))
    return key


@lru_cache(None)
def verifies(key, signature, message):
    """S2 to S4. The library does S4 alone."""
    small = signature[:32] in SMALL_ORDER and "S3" not in OFF
    if small or int.from_bytes(signature[32:], "little") >= L and "S2" not in OFF:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key_bytes(key)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return "S4" in OFF
    return True


def canonical(value): return ENCODER.encode(value).encode()
def key_bytes(key): return base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
def sha256(data): return hashlib.sha256(data).hexdigest()
def keyid(key): return sha256(key_bytes(key))
def base32(data): return base64.b32encode(hashlib.sha256(data).digest()).decode().lower()
def to_base64(data): return base64.b64encode(data).decode()
def to_base64url(data): return base64.urlsafe_b64encode(data).decode().rstrip("=")
def fingerprint(kind, data): return kind + ":" + "-".join(re.findall("....", base32(data)[:32]))


def from_base64(text, check):
    need(check, TYPES["base64"].fullmatch(text))
    return base64.b64decode(text + "==" if check in OFF else text)


class Envelope:
    """An envelope that obeys E1 to E5. A root version has its document in `doc`."""
    def __init__(self, value):
        names = [one.keyid for one in value.signatures]
        need("E2", 1 <= len(names) <= 16)
        need("E4", len({*names}) == len(names))
        self.entries = [(one.keyid, from_base64(one.sig, "E5")) for one in value.signatures]
        need("S1", all(len(signature) == 64 for _, signature in self.entries))
        self.kind, self.payload = value.payloadType, from_base64(value.payload, "E3")
        self.sha256 = sha256(self.payload)

    def signers(self, keys, without=()):
        """E7 and E8: which of these keys have a valid signature."""
        kind = self.kind.encode()
        message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(self.payload), self.payload)
        found = [key for key in keys for name, signature in self.entries
                 if (name == keyid(key) or "E7" in OFF) and verifies(key, signature, message)
                 and (key not in without or "elsewhere" in OFF)]
        return found if "E8" in OFF else {*found}

    def reaches(self, role, without=()):
        return len(self.signers(role.keys, without)) >= role.threshold


# --- root documents -------------------------------------------------------------------------------
def read_root(value):
    """R8, beyond its table."""
    doc = read("root", value)
    keys, root, release = [one.public_key for one in doc.keys], doc.root.keys, doc.release.keys
    need("root vault_id", (doc.vault_id is None) == (doc.version == 1))
    need("root previous", (doc.previous_sha256 is None) == (doc.version == 1))
    lasts = seconds(doc.expires_at) - seconds(doc.issued_at) if doc.expires_at else DAY
    need("root expires", 0 < lasts <= 1200 * DAY)
    need("root keys named", {*keys} == {*root, *release})
    need("root threshold", doc.root.threshold <= len(root))
    need("release threshold", doc.release.threshold <= len(release))
    need("root revoked", not {*doc.revoked} & {*keys})
    shared = {*root} & {*release}
    need("root apart", not shared or shared == {*root})
    need("root above", not shared or doc.root.threshold >= doc.release.threshold)
    return doc


def read_chain(values, own=()):
    """R1 to R13, place by place. R3 bounds the number of versions, too."""
    chain, size, same = [], 0, True
    with refusing("root_invalid"):
        need("R1", values)
        for place, value in enumerate(values, 1):
            value = read("envelope", value)
            version, before = Envelope(value), chain[-1] if chain else None
            size += len(canonical(value))
            need("R3", size <= 512 * 1024)
            same = same and place <= len(own) and own[place - 1].sha256 == version.sha256
            if same and "R4" not in OFF:
                chain.append(own[place - 1])
                continue
            need("R5", not before or version.reaches(before.doc.root))
            kind = re.fullmatch(r"application/vnd\.vault\.root\.v([1-9][0-9]*)\+json", version.kind)
            need("R6", kind)
            need("R6 newer", not kind or kind[1] == "1")
            schema = parse(version.payload, {"schema": "text"}, None).schema
            need("R7 newer", not re.fullmatch("vault.root/(?!1$)[1-9][0-9]*", schema))
            need("R8 size", len(version.payload) <= 16384)
            version.doc = parse(version.payload, read_root, None)
            need("R9", version.reaches(version.doc.root))
            need("R10", version.doc.version == place)
            if before:
                need("R11 id", version.doc.vault_id == vault_id(chain))
                need("R11 previous", version.doc.previous_sha256 == before.sha256)
                need("R12", {*before.doc.revoked} <= {*version.doc.revoked})
                need("R13", keys_of([version]) & keys_of(chain) <= keys_of([before]))
            chain.append(version)
    return chain


def folders_of(paths): return {path[:at.start()] for path in paths for at in re.finditer("/", path)}
def keys_of(chain): return {one.public_key for version in chain for one in version.doc.keys}
def vault_id(chain): return "vlt_" + base32(chain[0].payload)[:26]


# --- a reader and what it keeps -------------------------------------------------------------------
class Reader:
    """A device and what it keeps. `fetch` gets an object by its hash and size."""
    histories = ("C22", "skills"), ("C24", "former")

    def __init__(self, base="", slug="", now=""):
        self.base, self.slug, self.now = base, slug, now
        self.latest_seen_at = self.expected = self.stored = None
        self.chain, self.elsewhere, self.warnings = [], set(), []
        self.skills, self.former = {}, {}

    def take_catalog(self, data):
        """C1 to C24 and the objects. Returns `ok` or `equal`, and keeps what counts."""
        with refusing("catalog_schema"):
            need("C1", len(data) <= 4 * MIB)
            file = parse(data, "catalog file", None, signed=False)
            envelope = Envelope(file)
            need("E6", envelope.kind == "application/vnd.vault.catalog.v2+json")
        shows_newest = self.take_roots(file.roots)
        newest, role = self.chain[-1], self.chain[-1].doc.release
        if not envelope.reaches(role, self.elsewhere) and "C5" not in OFF:
            kind = {"root_version": "integer", "root_sha256": "hash"}
            older = self.older(parse(envelope.payload, kind, "signatures_missing"))
            need("C6 newest", shows_newest)
            need("C6 older", older and envelope.reaches(older.doc.release, self.elsewhere))
            raise Refused("release_awaited")
        signers = envelope.signers(role.keys, self.elsewhere)
        catalog = parse(envelope.payload, "catalog", "catalog_schema")
        for one in catalog.skills + catalog.index + catalog.profiles:
            need("C7 path", one.path == f"bundles/{one.bundle_hash}.json")
        bundles = {one.bundle_hash for one in catalog.skills}
        need("C7 withdrawn", not any(one.bundle_hash in bundles for one in catalog.withdrawn))
        if (catalog.root_version, catalog.root_sha256) != (newest.doc.version, newest.sha256):
            need("C8", self.older(catalog))
            need("C8 older", False, "release_awaited" if shows_newest else "root_rolled_back")
        need("C9", catalog.public_key == file.public_key)
        need("C10", catalog.public_key in signers)
        need("C11", catalog.vault_id == vault_id(self.chain))
        need("C12", catalog.slug == self.slug)
        need("C13", f"{self.base}/v/{self.slug}/" in catalog.audience)
        self.judge_time(catalog, newest.doc.expires_at)
        catalog.payload_sha256, catalog.signers = envelope.sha256, sorted(signers)
        valid = self.stored and (all(map(self.counts, self.stored.signers)) or "void" in OFF)
        if valid and self.follows(catalog):
            self.stored = catalog
            return "equal"
        self.judge_versions(catalog)
        skills = self.take_objects(catalog)
        self.former = {name: skill for name, skill in {**self.former, **self.skills}.items()
                       if name not in skills}
        self.stored, self.skills = catalog, skills
        self.latest_seen_at = max(self.now, self.latest_seen_at or self.now)
        return "ok"

    def take_roots(self, values):
        """C3. Returns whether the last one of these versions is the newest that counts."""
        own, shown, self.warnings = self.chain, read_chain(values, self.chain), []
        same = [mine.sha256 == other.sha256 for mine, other in zip(own, shown)]
        equal = [*same, False].index(False)
        need("own version 1", equal or not own)
        chain, revoked = own if equal == len(shown) else shown, set()
        if equal < len(same):
            revoked = {*own[-1].doc.revoked}
            need("F1", len(shown) > len(own))
            need("F2", all(version.reaches(own[-1].doc.root) for version in shown[equal:]))
            need("F3", not revoked & keys_of(shown[-1:]))
            self.warnings.append("root_history_differs")
        if self.expected:
            stem, _, place = self.expected.rpartition("/")
            named = chain[int(place) - 1:]
            need("fingerprint", named and fingerprint("vlt", named[0].payload) == stem)
            if any(version.doc.root != named[0].doc.root for version in named):
                self.warnings.append("root_role_changed")
        self.chain, self.elsewhere = chain, self.elsewhere | revoked
        return shown[-1].sha256 == chain[-1].sha256

    def older(self, named):
        """The older version of the chain that is named there."""
        return next((version for version in self.chain[:-1] if named.root_sha256 == version.sha256
                     and named.root_version == version.doc.version), None)

    def judge_time(self, catalog, root_expires):
        """C14, and C16 to C18."""
        issued, expires, now = map(seconds, (catalog.issued_at, catalog.expires_at, self.now))
        latest = now if "latest" in OFF else seconds(self.latest_seen_at or self.now)
        late = "release_expired" if now >= latest else "catalog_clock"
        need("C14", DAY <= expires - issued <= 400 * DAY)
        need("C16", max(now, latest) <= expires, late)
        need("C17", not root_expires or max(now, latest) <= seconds(root_expires), late)
        need("C18", not root_expires or expires <= seconds(root_expires))

    def counts(self, key):
        """Whether this key was a publisher's."""
        revoked = {*self.chain[-1].doc.revoked, *(() if "elsewhere" in OFF else self.elsewhere)}
        return key not in revoked and any(key in one.doc.release.keys for one in self.chain)

    def follows(self, catalog):
        """C19 to C21. Returns whether it is the stored release."""
        stored, previous = self.stored, catalog.previous
        need("C19", catalog.release >= stored.release)
        if catalog.release == stored.release:
            need("C19 equal", catalog.payload_sha256 == stored.payload_sha256)
            return True
        if catalog.root_sha256 == stored.root_sha256:
            need("C20", catalog.release <= stored.release + 1_000_000)
        need("C21 null", previous)
        if previous and previous.release == stored.release:
            need("C21 hash", previous.payload_sha256 == stored.payload_sha256)
        return False

    def judge_versions(self, catalog):
        """C22 to C24."""
        same_root = self.stored and catalog.root_sha256 == self.stored.root_sha256
        for check, history in self.histories:
            for one in catalog.skills:
                had = vars(self)[history].get(one.name)
                if not had or not self.counts(had.signer) and "void skill" not in OFF:
                    continue
                same = one.bundle_hash == had.bundle_hash
                need(check, one.version >= had.version)
                need(check + " hash", one.version != had.version or same)
                if same_root and check == "C22":
                    need("C23", one.version <= had.version + 1_000_000)

    def take_objects(self, catalog):
        """Checks everything that the catalog names. Returns each skill with signer and files."""
        for one in catalog.skills:
            one.signer, one.files = self.read_bundle(self.take(one), one.name, one.version)
        skills = {one.name: one for one in catalog.skills}
        bundles = {one.bundle_hash for one in catalog.skills}
        for one in catalog.profiles:
            profile = parse(self.take(one), "profile", "profile_schema", signed=False)
            need("profile agent", profile.agent == one.agent)
            for variant in profile.skills:
                if variant.bundle_hash not in bundles:
                    need("profile skill", variant.name in skills)
                    self.read_bundle(self.take(variant), variant.name, skills[variant.name].version)
        return skills

    def take(self, named):
        """O1 and O2."""
        data = self.fetch(named.bundle_hash, named.size)
        need("O1", len(data) == named.size <= 4 * MIB)
        need("O2", sha256(data) == named.bundle_hash)
        return data

    def read_manifest(self, envelope, name, version):
        """M1 to M7. Returns the signer and the manifest."""
        need("M1", len(envelope.entries) == 1)
        need("M1 type", envelope.kind == "application/vnd.vault.skill-manifest.v2+json")
        signer = next(iter(envelope.signers(keys_of(self.chain))), None)
        need("M2", signer or self.judge_signer(None))
        manifest = parse(envelope.payload, "manifest", "manifest_schema")
        sizes = {one.path: one.size for one in manifest.files}
        check_paths([*sizes])
        need("M3 files", "SKILL.md" in sizes)
        need("M3 size SKILL.md", sizes.get("SKILL.md", 0) <= MIB // 4)
        need("M3 size sum", sum(sizes.values()) <= 16 * MIB)
        for action in manifest.actions.values():
            program = TYPES["program"].fullmatch(action.command)
            need("M3 actions command", program or action.command in sizes)
            need("M3 actions cwd", action.cwd in {".", *folders_of(sizes)})
        kind, revision = manifest.provenance.kind, manifest.provenance.revision
        form = "[0-9a-f]{40}|[0-9a-f]{64}" if kind == "code-host" else TYPES["shown name"]
        need("M3 provenance", provenance_kind(manifest.provenance.identifier) == kind)
        if revision is not None:
            need("M3 revision", re.fullmatch(form, revision) and len(revision.encode()) <= 255)
        need("M4", manifest.vault_id == vault_id(self.chain))
        self.judge_signer(signer)
        need("M6", manifest.name == name)
        need("M7", manifest.version == version)
        return signer, manifest

    def judge_signer(self, signer):
        """M5, for a bundle that a catalog lists."""
        need("M5", self.counts(signer))

    def read_bundle(self, data, name, version):
        """B1 to B8. Returns the signer, and bytes and mode of each file."""
        bundle = parse(data, "bundle", "bundle_schema", signed=False)
        for one in bundle.files:
            missing = one.parts is None, one.content is None
            need("B1 content", missing == (one.encoding != "parts", one.encoding == "parts"))
        sizes = [part.size for one in bundle.files for part in one.parts or []]
        need("B1 parts", sum(sizes) - 64 * len(sizes) <= 22_369_624)
        with refusing("manifest_schema"):
            envelope = Envelope(bundle.manifest)
        signer, manifest = self.read_manifest(envelope, name, version)
        need("B3", [one.path for one in bundle.files] == [one.path for one in manifest.files])
        files = {}
        for one, signed in zip(bundle.files, manifest.files):
            if one.parts:
                content = self.join_parts(one.parts, signed.size)
            else:
                in_base64, text = one.encoding == "base64", one.content
                content = from_base64(text, "B4") if in_base64 else text.encode()
                need("B4 encoding", encode(content)[0] == one.encoding)
            need("B6", (len(content), sha256(content)) == (signed.size, signed.sha256))
            files[one.path] = content
        manifest_bytes = data.removeprefix(HEAD).rpartition(b',"files":')[0]
        whole, parts = write_bundle(manifest_bytes, files)
        need("B7", {*parts} == {one.path for one in bundle.files if one.parts})
        need("B8", whole == data)
        return signer, {one.path: (files[one.path], one.mode) for one in manifest.files}

    def join_parts(self, parts, size):
        """B5: the bytes of a file of this size."""
        whole = b""
        need("B5 count", len(parts) == -(-size // PART_BYTES))
        for part in parts:
            data = self.fetch(part.bundle_hash, part.size)
            need("B5 size", len(data) == part.size)
            need("B5 hash", sha256(data) == part.bundle_hash)
            part = parse(data, "part", "bundle_parts", signed=False)
            content = base64.b64decode(part.content)
            need("B5 place", len(content) == min(PART_BYTES, size - len(whole)))
            whole += content
        return whole


# --- paths and bundles ----------------------------------------------------------------------------
def provenance_kind(identifier):
    """The kind of this form; None if it has none."""
    forms = GIVEN["provenance"] if len(identifier.encode()) <= 2048 else []
    return next((kind for kind, form in forms if re.fullmatch(form, identifier)), None)


def check_paths(paths):
    """P1 to P9."""
    folders, folded = folders_of(paths), {}
    for path in paths:
        segments = path.split("/")
        need("P1", len(path.encode()) <= 255 and len(segments) <= 16)
        need("P1 segment", all(len(one.encode()) <= 100 for one in segments))
        need("P3", unicodedata.is_normalized("NFC", path))
        for check, form in GIVEN["paths"].items():
            need(check, not re.search(form, path.lower()))
    for one in {*paths} | folders:
        fold = unicodedata.normalize("NFC", unicodedata.normalize("NFC", one).casefold())
        need("P9", folded.setdefault(fold, one) == one)
    need("P9 parent", not folders & {*paths})


def encode(data):
    """Rule 1: the encoding of a file, and its content."""
    try:
        if b"\0" not in data:
            return "utf-8", data.decode()
    except UnicodeDecodeError:
        pass
    return "base64", to_base64(data)


def write_bundle(manifest, files):
    """Rules 2 and 3: the bundle of a manifest's envelope and files, and its part objects."""
    entries, lengths, parts = {}, {}, {}
    for path, data in files.items():
        encoding, content = encode(data)
        entries[path] = {"path": path, "encoding": encoding, "content": content}
        lengths[path] = len(canonical(content)) - 2, path.encode()
    while True:
        bundle = HEAD + manifest + b',"files":' + canonical([*entries.values()]) + b"}"
        longest = max(lengths, key=lengths.get, default=None)
        rule_2 = longest and lengths.pop(longest)[0] > MIB and "B7 rule 2" not in OFF
        if not rule_2 and (not longest or len(bundle) <= 4 * MIB or "B7 rule 3" in OFF):
            return bundle, parts
        data = files[longest]
        pieces = [to_base64(data[at:at + PART_BYTES]) for at in range(0, len(data), PART_BYTES)]
        parts[longest] = [canonical({"schema": "vault.part/1", "content": one}) for one in pieces]
        hashes = [{"bundle_hash": sha256(one), "size": len(one)} for one in parts[longest]]
        entries[longest] = {"path": longest, "encoding": "parts", "parts": hashes}

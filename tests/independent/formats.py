"""A reader of vault's formats, written from docs/formats.md alone. A check has the name that the page gives it, and `CHECKS_OFF` takes
checks out by these names, so that mutations.py can show which vector notices."""

import base64
import hashlib
import json
import os
import re
import unicodedata
from collections import namedtuple
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

OFF = set(os.environ.get("CHECKS_OFF", "").split(","))
MIB = 1 << 20
VECTORS = Path(__file__).resolve().parent.parent / "vectors"
UNPRINTABLE = [(int(low, 16), int(high, 16)) for low, high in json.loads((VECTORS / "roots/names.json").read_bytes())["refused_code_points"]]
HIDDEN = re.compile("[\0-\x1f\x7f-\x9f\u200b-\u200d\u2028-\u202e\u2066-\u2069\ufeff]")


class Refused(Exception):
    """The word of a refusal; None until the object is known that was being read."""


def need(check, holds, word=None):
    if not holds and check not in OFF:
        raise Refused(word)


@contextmanager
def refusing(word):
    """Gives the word of this object to refusals inside that have none yet."""
    try:
        yield
    except Refused as refusal:
        raise Refused(refusal.args[0] or word) from None


# --- JSON -----------------------------------------------------------------------------------------


class Pairs(list):
    """The members of an object in their order, repetitions included."""


def number(text):
    """An int if J7 allows it, else a float, which no type of a table is."""
    good = re.fullmatch("0|[1-9][0-9]{0,15}", text) and int(text) < 2**53
    return int(float(text)) if good or "J7" in OFF else float(text)


def walk(value, depth, signed):
    if isinstance(value, list):
        need("J3", depth <= 32)
        for part in [part for member in value for part in (member if type(member) is tuple else [member])]:
            walk(part, depth + 1, signed)
    need("J4", type(value) is not str or not re.search("[\ud800-\udfff]", value))
    need("J7", not signed or type(value) is not float)


def parse(data, kind, word, signed=True):
    with refusing(word):
        text = data.decode("utf-8-sig", "replace")
        need("J1", text.encode() == data)
        text = text.lstrip(" \t\n\r")
        try:  # int() refuses NaN and Infinity, which are no JSON.
            value, end = json.JSONDecoder(object_pairs_hook=Pairs, parse_int=number, parse_float=number, parse_constant=int).raw_decode(text)
        except (ValueError, RecursionError):
            raise Refused(word) from None
        need("J2", type(value) is Pairs and not text[end:].strip(" \t\n\r"))
        walk(value, 1, signed)
        return kind(value)


canonical = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

# --- types of the tables --------------------------------------------------------------------------


def record(**table):
    def read(value):
        need("J6", type(value) is Pairs)
        found = {}
        for name, member in value:
            need("J5", name not in found or name not in table)
            found[name] = member
        for name, kind in table.items():
            need("J8", name in found or type(kind) is tuple)
        return {name: (kind[0] if type(kind) is tuple else kind)(found[name]) for name, kind in table.items() if name in found}
    return read


optional = lambda kind: (kind,)


def typed(python_type):
    def read(value):
        need("J6", type(value) is python_type)
        return value
    return read


text, integer, flag = typed(str), typed(int), typed(bool)


def checked(check, holds):
    def read(value):
        need(check, holds(text(value)))
        return value
    return read


pattern = lambda expression, check="types": checked(check, re.compile(expression).fullmatch)
constant = lambda wanted: lambda value: need("J9", value == wanted) or value
maybe = lambda kind: lambda value: None if value is None else kind(value)
many = lambda kind: lambda value: [kind(member) for member in typed(list)(value)]


def mapping(kind):
    def read(value):
        need("J6", type(value) is Pairs)
        need("J5 map", len({name for name, _ in value}) == len(value))
        return {name: kind(member) for name, member in value}
    return read


def seconds(value):
    year, *rest = map(int, re.findall("[0-9]+", value))
    return (datetime(year or 400, *rest) - datetime(1970, 1, 1)) / timedelta(seconds=1) - (0 if year else 146097 * 86400)


def exists(value):
    try:  # The year 0000 has the calendar of 0400.
        return seconds(value) is not None
    except ValueError:
        return False


time = lambda value: checked("time exists", exists)(pattern("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", "time form")(value))
increasing = lambda values: all(low < high for low, high in zip(values, values[1:]))
DEVICE_NAMES = {"con", "prn", "aux", "nul", "conin$", "conout$", *(port + digit for port in ("com", "lpt") for digit in "123456789¹²³")}
HASH = pattern("[0-9a-f]{64}")
VAULT_ID = pattern("vlt_[a-z2-7]{26}")
SLUG = pattern("(?=.{1,63}$)[a-z0-9]+(-[a-z0-9]+)*")
AGENT = pattern("[a-z0-9-]{1,64}")
ULID = pattern("[0-7][0-9A-HJKMNP-TV-Z]{25}")
ACTION = pattern("(?!(list|search|which)$)[a-z][a-z0-9-]{0,31}")
skill_name = checked("skill name", lambda value: re.fullmatch("(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*", value) and value not in DEVICE_NAMES)
shown_text = checked("hidden", lambda value: not HIDDEN.search(value))
KEY_TEXT = pattern("[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]", "K1")


# --- keys and envelopes ---------------------------------------------------------------------------

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def add(a, b):
    k = D * a[0] * b[0] * a[1] * b[1] % P
    return (a[0] * b[1] + b[0] * a[1]) * pow(1 + k, -1, P) % P, (a[1] * b[1] + a[0] * b[0]) * pow(1 - k, -1, P) % P


def times(n, a):
    result = (0, 1)
    while n:
        result, a, n = (add(result, a) if n & 1 else result), add(a, a), n >> 1
    return result


key_bytes = lambda value: base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))


@lru_cache(None)
def key(value):
    raw = key_bytes(KEY_TEXT(value))
    y, sign = int.from_bytes(raw, "little") % 2**255, raw[31] >> 7
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
    return value


ORDER_8 = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03"
SMALL_ORDER = {bytes.fromhex(one) for one in ("01" + "00" * 31, "ec" + "ff" * 30 + "7f", "00" * 32, "00" * 31 + "80", ORDER_8[0] + "05",
                                              ORDER_8[0] + "85", ORDER_8[1] + "7a", ORDER_8[1] + "fa")}


@lru_cache(None)
def verifies(public_key, signature, message):
    small = signature[:32] in SMALL_ORDER and "S3" not in OFF
    if small or int.from_bytes(signature[32:], "little") >= L and "S2" not in OFF:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key_bytes(public_key)).verify(signature, message)
    except (InvalidSignature, ValueError):
        return "S4" in OFF
    return True


sha256 = lambda data: hashlib.sha256(data).hexdigest()
base32 = lambda data: base64.b32encode(hashlib.sha256(data).digest()).decode().lower()
fingerprint = lambda kind, data: kind + ":" + "-".join(re.findall("....", base32(data)[:32]))
keyid = lru_cache(None)(lambda public_key: sha256(key_bytes(public_key)))


def standard_base64(value, check="E3"):
    try:
        raw = base64.b64decode(value + "==" if check in OFF else value)
    except ValueError:
        raise Refused(None) from None
    need(check, base64.b64encode(raw).decode() == value)
    return raw


class Envelope(namedtuple("Envelope", "kind payload entries")):
    def signed_by(self, keys):
        """E7 and E8: which of these keys have a valid signature."""
        message = b"DSSEv1 %d %b %d %b" % (len(self.kind.encode()), self.kind.encode(), len(self.payload), self.payload)
        found = [one for one in keys for name, sig in self.entries if (name == keyid(one) or "E7" in OFF) and verifies(one, sig, message)]
        return found if "E8" in OFF else set(found)


ENVELOPE = dict(payloadType=text, payload=text, signatures=many(record(keyid=text, sig=text)))


def envelope_of(value):
    need("E2", 1 <= len(value["signatures"]) <= 16)
    names = [entry["keyid"] for entry in value["signatures"]]
    need("E4", len(set(names)) == len(names))
    entries = tuple((entry["keyid"], standard_base64(entry["sig"], "E5")) for entry in value["signatures"])
    need("S1", all(len(sig) == 64 for _, sig in entries))
    return Envelope(value["payloadType"], standard_base64(value["payload"]), entries)


# --- root documents -------------------------------------------------------------------------------

ROLE = record(threshold=integer, keys=many(key))
ROOT = record(schema=constant("vault.root/1"), vault_id=maybe(VAULT_ID), version=integer, previous_sha256=maybe(HASH), issued_at=time,
              expires_at=maybe(time), keys=many(record(public_key=key, name=text)), root=ROLE, release=ROLE, revoked=many(KEY_TEXT))


Version = namedtuple("Version", "envelope sha doc")


printable = lambda value: not any(low <= ord(letter) <= high for letter in value for low, high in UNPRINTABLE)


def root_document(value):
    doc = ROOT(value)
    first, keys, (root, release) = doc["version"] == 1, [entry["public_key"] for entry in doc["keys"]], (doc["root"], doc["release"])
    need("root vault_id", (doc["vault_id"] is None) == first)
    need("root previous", (doc["previous_sha256"] is None) == first)
    need("root version", 1 <= doc["version"] <= 1024)
    if doc["expires_at"]:
        need("root expires", 0 < seconds(doc["expires_at"]) - seconds(doc["issued_at"]) <= 1200 * 86400)
    need("root keys sorted", increasing(keys) and all(increasing(part) for part in (root["keys"], release["keys"], doc["revoked"])))
    need("root keys named", set(keys) == {*root["keys"], *release["keys"]})
    need("root counts", 1 <= len(root["keys"]) <= 8 and 1 <= len(release["keys"]) <= 32 and len(doc["revoked"]) <= 256)
    need("root thresholds", all(1 <= role["threshold"] <= min(4, len(role["keys"])) for role in (root, release)))
    need("root revoked", not {*doc["revoked"]} & {*keys})
    need("root apart", {*root["keys"]} <= {*release["keys"]} or not {*root["keys"]} & {*release["keys"]})
    need("root above", not {*root["keys"]} & {*release["keys"]} or root["threshold"] >= release["threshold"])
    names = {key_name(entry["name"]) for entry in doc["keys"]}
    need("names differ", len(names) == len(keys))
    return doc


def key_name(name):
    need("name length", 1 <= len(name) <= 64)
    need("name printable", printable(name))
    need("name fingerprint", not re.fullmatch("(pub|dev):([a-z2-7]{4}-){7}[a-z2-7]{4}", name.strip()))
    return name


reaches = lambda envelope, role, without=(): len([one for one in envelope.signed_by(role["keys"]) if one not in without]) >= role["threshold"]


def read_chain(values, own=()):
    """R1 to R13, place by place."""
    need("R1", values, "root_invalid")
    chain, size, same = [], 0, True
    for place, value in enumerate(values, 1):
        with refusing("root_invalid"):
            need("R1 number", place <= 1024)
            value = record(**ENVELOPE)(value)
            envelope = envelope_of(value)
            size += len(canonical(value))
            need("R3", size <= 512 * 1024)
            sha, before = sha256(envelope.payload), chain[-1] if chain else None
            same = same and place <= len(own) and own[place - 1].sha == sha
            if same and "R4" not in OFF:
                chain.append(own[place - 1])
                continue
            need("R5", not before or reaches(envelope, before.doc["root"]))
            other = re.fullmatch(r"application/vnd\.vault\.root\.v([1-9][0-9]*)\+json", envelope.kind)
            need("R6 newer", not other or other[1] == "1", "newer_vault")
            need("R6", other)
            schema = parse(envelope.payload, record(schema=text), "root_invalid")["schema"]
            need("R7 newer", not re.fullmatch("vault.root/(?!1$)[1-9][0-9]*", schema), "newer_vault")
            need("R8 size", len(envelope.payload) <= 16384)
            doc = parse(envelope.payload, root_document, "root_invalid")
            need("R9", reaches(envelope, doc["root"]))
            need("R10", doc["version"] == place)
            if before:
                need("R11 id", doc["vault_id"] == vault_id(chain))
                need("R11 previous", doc["previous_sha256"] == before.sha)
                need("R12", {*before.doc["revoked"]} <= {*doc["revoked"]})
                need("R13", not named([doc]) & named(one.doc for one in chain) - named([before.doc]))
            chain.append(Version(envelope, sha, doc))
    return chain


named = lambda docs: {entry["public_key"] for doc in docs for entry in doc["keys"]}
vault_id = lambda chain: "vlt_" + base32(chain[0].envelope.payload)[:26]


def standing(public_key, chain, elsewhere):
    newest, once = chain[-1].doc, any(public_key in one.doc["release"]["keys"] for one in chain)
    revoked = {*newest["revoked"]} | (elsewhere if "elsewhere" not in OFF else set())
    root = "root, was a publisher's" if once else "root only"
    places = ("revoked", revoked), ("release", newest["release"]["keys"]), (root, newest["root"]["keys"])
    return next((name for name, keys in places if public_key in keys), "retired" if once else "unknown")


PUBLISHERS = "release", "retired", "root, was a publisher's"


was_publishers = lambda public_key, chain, elsewhere: standing(public_key, chain, elsewhere) in PUBLISHERS


def choose_chain(own, shown, elsewhere, expected):
    """What a reader follows who has `own` and is shown `shown`, with the keys revoked elsewhere and its warnings."""
    warnings, equal = [], 0
    while equal < min(len(own), len(shown)) and own[equal].sha == shown[equal].sha:
        equal += 1
    need("pin", equal or not own, "vault_changed")
    chain = own if equal == len(shown) else shown
    if own and equal < len(own) and equal < len(shown):
        newest = own[-1].doc
        need("F1", len(shown) > len(own), "root_forked")
        need("F2", all(reaches(one.envelope, newest["root"]) for one in shown[equal:]), "root_forked")
        need("F3", not {*newest["revoked"]} & named([shown[-1].doc]), "root_forked")
        elsewhere = elsewhere | {*newest["revoked"]}
        warnings.append("root_history_differs")
    if expected:
        stem, _, place = expected.rpartition("/")
        place = int(place)
        need("fingerprint", place <= len(chain) and fingerprint("vlt", chain[place - 1].envelope.payload) == stem, "vault_changed")
        if any(chain[later].doc["root"] != chain[later - 1].doc["root"] for later in range(place, len(chain))):
            warnings.append("root_role_changed")
    return chain, elsewhere, warnings

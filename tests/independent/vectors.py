"""Runs every vector of tests/vectors through the reader, and compares how many it ran with how many there are."""

import base64
import copy
import json
import re
import sys
import tomllib
from types import SimpleNamespace

import reader
import skill_md
from device import signed_headers
from reader import (OFF, TABLES, VECTORS, Envelope, Pairs, Reader, Refused, base32, canonical, check_paths, fingerprint, key_bytes,
                    need, parse, provenance_kind, read_chain, refusing, sha256, vault_id, verifies, write_bundle)

ROOTS, FORMATS = VECTORS / "roots", VECTORS / "formats"
OTHER_EXITS = {"ok": 0, "equal": 0, "newer_vault": 1, "expect_key_needed": 2, "release_awaited": 3, "signer_retired": 3, "proposal_outdated": 3, "release_expired": 3}
read = lambda path: json.loads(path.read_bytes())
of_kind = reader.read
made, counts, failures, again, only_first = {}, {}, [], 0, False


def fetch(sha, size):
    """An object of the vectors by its hash, those that are made by rule included."""
    if not made:
        for case in read(FORMATS / "parts.json")["cases"]:
            made.update({sha256(part): part for parts in made_bundle(case)[1].values() for part in parts})
        made.update({one["bundle_hash"]: one["bytes"].encode() for one in read(FORMATS / "parts.json")["small_parts"]})
        for path in [*ROOTS.glob("*-*.json"), *FORMATS.glob("*-*.json")]:
            made[path.stem.rpartition("-")[2]] = path.read_bytes()
    if sha not in made:
        raise Refused(None)
    return made[sha]


def made_files(case):
    files = {path: content.encode() for path, content in case.get("inline", {}).items()}
    for one in case["rules"]:
        size = one["size"]
        files[one["path"]] = one["byte"].encode() * size if one["rule"] == "repeat" else b"".join(n.to_bytes(4, "big") for n in range(size // 4))
    return files


def made_bundle(case):
    envelope, files = case.get("manifest"), made_files(case)
    if case["bundle"]:
        bundle = read(FORMATS / case["bundle"])
        envelope, files = envelope or bundle["manifest"], {"SKILL.md": bundle["files"][0]["content"].encode(), **files}
    return write_bundle(canonical(envelope), files)


def check(file, name, got, wanted):
    counts[file] = counts.get(file, 0) + 1
    if got != wanted:
        failures.append(f"{file} {name}: {got!r} instead of {wanted!r}")
        print(failures[-1])
        if only_first:
            sys.exit(1)


def outcome(action):
    """The word of a refusal, or what comes out; other faults are their own word."""
    try:
        return action()
    except Refused as refusal:
        return refusal.args[0]
    except Exception as fault:  # a check that mutations.py took out
        return f"{type(fault).__name__}: {fault}"


# --- the other readers of the pages ---------------------------------------------------------------

class Role(Reader):
    """A device that also searches; by `side` a service, and by `place` the reader of an archive or of the owner's library."""

    side, place, taken_over = "device", "catalog", set()

    def fetch(self, sha, size):
        return fetch(sha, size)

    def standing(self, key):
        newest, once = self.chain[-1].doc, any(key in one.doc.release.keys for one in self.chain)
        places = ("revoked", {*newest.revoked, *(() if "elsewhere" in OFF else self.elsewhere)}), ("release", newest.release.keys), ("root only", newest.root.keys)
        return next((name for name, keys in places if key in keys), "retired" if once else "unknown")

    def judge_signer(self, signer):
        """M5 of each place."""
        standing = self.standing(signer)
        good, retired = standing == "release", standing == "retired"
        if self.place in ("catalog", "run"):
            return super().judge_signer(signer)
        if self.place in ("archive listed", "library taken over"):
            need("M5", good or retired, "manifest_signature")
        need("M5", self.place != "archive" or not good or self.chain[-1].doc.release.threshold == 1, "release_awaited")
        if self.place in ("archive", "library"):
            need("M5", good, "signer_retired" if retired else "manifest_signature")

    def void(self):
        return not all(map(self.counts, self.stored.signers))

    def take_catalog(self, data):
        """Roots that a refusal does not leave behind, and C4."""
        before, pinned = (self.chain, self.elsewhere), self.side == "device" and (self.chain or self.expected)
        try:
            need("C1", len(data) <= 4 << 20)
            file = parse(data, "catalog file", "catalog_schema", signed=False)
            with refusing("catalog_schema"):
                envelope = Envelope(file)
            outside = file.public_key, envelope.payload, {*envelope.entries}
            if self.side == "service" and self.stored and self.stored.file == outside and "C4" not in OFF:
                self.take_roots(file.roots)
                return "ok" if len(self.chain) > len(before[0]) else "equal"
            word = super().take_catalog(data)
            self.stored.file = outside
            return word
        except Refused as refusal:
            if not pinned and (self.side == "service" or refusal.args[0] != "release_awaited"):
                self.chain, self.elsewhere = before
            raise

    def judge_time(self, catalog, root_expires):
        if self.side == "service":
            self.latest_seen_at = None
            need("C15", reader.seconds(catalog.issued_at) <= reader.seconds(self.now) + 300)
        super().judge_time(catalog, root_expires)

    def follows(self, catalog):
        same = super().follows(catalog)
        need("C21 service", same or self.side == "device" or catalog.previous.release == self.stored.release)
        return same

    @property
    def histories(self):
        return Reader.histories if self.side == "device" else Reader.histories[::-1]

    def join_parts(self, parts, size):
        with refusing("bundle_parts"):
            return super().join_parts(parts, size)

    def take_objects(self, catalog):
        skills, listed = super().take_objects(catalog), []
        for one in catalog.index:
            listed += self.read_index(self.take(one))
        need("index lists", listed == [(one.name, one.bundle_hash) for one in catalog.skills])
        return skills

    def read_index(self, data):
        index = parse(data, "index", "index_schema", signed=False)
        need("index vault", index.vault_id == vault_id(self.chain))
        return [(one.name, one.bundle_hash) for one in index.skills]


# --- roots ----------------------------------------------------------------------------------------

NAMES, RELEASES, KEYS = read(ROOTS / "roots.json"), read(ROOTS / "releases.json"), read(ROOTS / "keys.json")
compact = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def roots_of(names):
    """A list of envelopes by names, or made by rule."""
    if isinstance(names, list):
        return [NAMES[name] for name in names]
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    secret, made_by_rule = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(KEYS[names["signer"]]["seed_hex"])), [NAMES[names["from"]]]
    first = base64.b64decode(made_by_rule[0]["payload"])
    before, vault = first, "vlt_" + base32(first)[:26]
    for version in range(2, names["versions"] + 1):
        doc = {**json.loads(first), "version": version, "vault_id": vault, "previous_sha256": sha256(before), **({"pad": "x" * names["pad"]} if names["pad"] else {})}
        before = compact(doc)
        kind = made_by_rule[0]["payloadType"]
        sig = secret.sign(b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(before), before))
        entry = {"keyid": KEYS[names["signer"]]["keyid"], "sig": base64.b64encode(sig).decode()}
        envelope = {"payloadType": kind, "payload": base64.b64encode(before).decode(), "signatures": [entry]}
        made_by_rule.append({**envelope, **({"x": "x" * names["unknown"]} if names["unknown"] else {})})
    if sha256(compact(made_by_rule)) != names["sha256"]:
        failures.append("made by rule: another list than " + names["sha256"])
    return made_by_rule


def pairs(value):
    return json.loads(compact(value), object_pairs_hook=Pairs)


def file_of(given):
    if "bytes" in given:
        return given["bytes"].encode()
    if "file" in given:
        return (ROOTS / given["file"]).read_bytes()
    release = RELEASES[given["release"]]
    return compact({"public_key": release.get("public_key"), "roots": roots_of(given["roots"]), **{name: release[name] for name in TABLES["envelope"] if name in release}})


def envelope_of(value):
    return Envelope(of_kind("envelope", pairs(value)))


def reader_of(state):
    """A reader in the state of a case. It installed what its stored release names."""
    reader = Role(state["base"], state["slug"], state["now"])
    reader.latest_seen_at, reader.side, reader.expected = state["latest_seen_at"], state["side"], state["expect_key"]
    reader.chain, reader.elsewhere = read_chain(pairs(roots_of(state["roots"] or [])), ()) if state["roots"] else [], {*state["revoked"]}
    reader.signed, reader.taken_over = dict(state["signed"]), {*state["taken_over"]}
    if state["stored"]:
        release = RELEASES[state["stored"]["release"]] if isinstance(state["stored"], dict) else read(FORMATS / state["stored"])
        signers = state["stored"]["signers"] if isinstance(state["stored"], dict) else [release["public_key"]]
        envelope = envelope_of(release)
        reader.stored = json.loads(envelope.payload, object_hook=lambda members: SimpleNamespace(**members))
        reader.stored.file = release["public_key"], envelope.payload, {*envelope.entries}
        reader.stored.payload_sha256, reader.stored.signers = envelope.sha256, signers
        for skill in reader.stored.skills:
            signer, = envelope_of(json.loads(fetch(skill.bundle_hash, skill.size))["manifest"]).signers([entry["public_key"] for entry in KEYS.values() if "keyid" in entry])
            reader.skills[skill.name] = SimpleNamespace(version=skill.version, bundle_hash=skill.bundle_hash, signer=signer)
    return reader


def sign(reader, data):
    """A1 to A4: a publisher is about to add a signature. For the trial, one signature is enough."""
    reader.take_roots(parse(data, "catalog file", "catalog_schema", signed=False).roots)
    trial, stored = copy.copy(reader), reader.stored
    trial.chain = copy.deepcopy(reader.chain)
    for version in trial.chain:
        version.doc.release.threshold = 1
    try:
        word = trial.take_catalog(data)
    except Refused as refusal:
        raise Refused("proposal_outdated") if refusal.args[0] in ("release_awaited", "root_rolled_back", "catalog_release") else refusal
    need("A2", word != "equal", "proposal_outdated")
    catalog, previous = trial.stored, trial.stored.previous
    place = f"{reader.slug}/{catalog.root_version}/{catalog.release}"
    follows = previous and stored and (previous.release, previous.payload_sha256) == (stored.release, stored.payload_sha256)
    need("A4", not stored or reader.void() or follows, "proposal_outdated")
    need("A3", reader.signed.setdefault(place, catalog.payload_sha256) == catalog.payload_sha256, "proposal_outdated")


def judge(reader, do, given):
    """One step of a case. Returns its word."""
    reader.warnings, reader.place = [], "catalog"
    if do == "catalog":
        return reader.take_catalog(file_of(given))
    if do == "sign":
        sign(reader, file_of(given))
    elif do == "chain":
        reader.take_roots(pairs(roots_of(given["roots"])))
    elif do == "recover":
        file, shown = given["file"], read_chain(pairs(roots_of(given["roots"])))
        need("recover vault", vault_id(shown) == file["vault_id"], "vault_changed")
        need("recover rolled back", len(shown) >= max(file["version"], given["at_least"] or 1), "root_rolled_back")
        need("recover forked", shown[file["version"] - 1].sha256 == file["sha256"], "root_forked")
        reader.chain = shown
    elif do in ("run", "mcp"):
        good = reader.counts(reader.skills[given["skill"]].signer) if do == "run" else not reader.void()
        need(do, good, "release_awaited")
    elif do == "archive":
        need("archive pin", reader.chain or reader.expected, "expect_key_needed")
        reader.take_roots(pairs(roots_of(given["roots"])))
    if "bundle" in given:
        listed = do == "archive" and reader.stored and given["bundle"] in {skill.bundle_hash for skill in reader.stored.skills}
        taken_over = do == "library" and given["bundle"] in reader.taken_over
        reader.place, data = "archive listed" if listed else "library taken over" if taken_over else do, fetch(given["bundle"], None)
        manifest = json.loads(base64.b64decode(json.loads(data)["manifest"]["payload"]))
        reader.read_bundle(data, manifest["name"], manifest["version"])
    return "ok"


def after(reader):
    stored = reader.stored or SimpleNamespace(payload_sha256=None, signers=None)
    return [one.sha256 for one in reader.chain], stored.payload_sha256, stored.signers, reader.elsewhere


def play(file, name, reader, case):
    """One case or step: its word, exit, warnings, and the state afterwards."""
    roots, stored, signers, elsewhere = after(reader)
    word = outcome(lambda: judge(reader, case["do"], case["input"]))
    wanted, now = case.get("after", {}), after(reader)
    if "root_count" in wanted:
        roots = [None] * wanted["root_count"]
        now = [None] * len(now[0]), *now[1:]
    if "roots" in wanted:
        roots = [sha256(base64.b64decode(NAMES[root]["payload"])) for root in wanted["roots"]]
    if "stored" in wanted:
        stored = sha256(base64.b64decode(RELEASES[wanted["stored"]]["payload"]))
    state = roots, stored, wanted.get("signers", signers), {*wanted["revoked"]} if "revoked" in wanted else elsewhere
    check(file, name, (word, OTHER_EXITS.get(word, 6), reader.warnings, now), (case["result"], case["exit"], case.get("warnings", []), state))


def vault_fingerprint(chain):
    """Of the newest version whose root role differs from that of the version before."""
    place = max(place for place in range(len(chain)) if not place or chain[place].doc.root != chain[place - 1].doc.root)
    return fingerprint("vlt", chain[place].payload) + f"/{place + 1}"


def run_roots():
    for file in ("accept.json", "negative.json"):
        cases = read(ROOTS / file)
        for case in cases["cases"]:
            play("roots/" + file, case["id"], reader_of({**cases["state"], **case["state"]}), case)
    stories = read(ROOTS / "stories.json")
    for story in stories["stories"]:
        actors = {name: reader_of({**stories["state"], **state}) for name, state in story["actors"].items()}
        for place, step in enumerate(story["steps"], 1):
            play("roots/stories.json", f"{story['id']} {place}", actors[step["actor"]], step)
    for name, one in read(ROOTS / "chains.json")["chains"].items():
        data = (ROOTS / one["file"]).read_bytes()
        chain = read_chain(json.loads(data, object_pairs_hook=Pairs))
        wanted = one["vault_id"], one["fingerprint"], compact(roots_of(one["roots"]))
        check("roots/chains.json", name, (vault_id(chain), vault_fingerprint(chain), data.rstrip()), wanted)
    names = read(ROOTS / "names.json")
    for name in names["accept"] + names["refuse"]:
        check("roots/names.json", ascii(name), outcome(lambda: of_kind("key name", name) and "ok"), "ok" if name in names["accept"] else None)


# --- formats, device requests ---------------------------------------------------------------------

POLICY = {name: kind for name, kind in TABLES["policy"].items() if name != "schema"}
NAMED = "add_groups", "remove_groups"


def plain(value):
    """Dicts without the members that are absent or null."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    members = value if isinstance(value, dict) else vars(value) if isinstance(value, SimpleNamespace) else None
    return value if members is None else {name: plain(one) for name, one in members.items() if one is not None}


def check_draft(draft, slug, vault_id, current_bundle_hash):
    wanted = {"propose": {"files"}, "install": {"source"}, "remove": set()}
    with refusing("draft_schema"):
        need("draft kind", {"files", "source"} & {*draft} == wanted[draft["kind"]])
    need("draft slug", draft["slug"] == slug, "draft_slug")
    need("draft vault", draft.get("vault_id") == vault_id, "draft_vault_id")
    with refusing("draft_name"):
        of_kind("skill name", draft["name"])
    paths, base = [one["path"] for one in draft.get("files", [])], draft.get("base_bundle_hash")
    try:
        check_paths(paths)
    except Refused:
        raise Refused("draft_path") from None
    with refusing("draft_files"):
        for one in draft.get("files", []):
            content = reader.from_base64(one["content"], "draft base64") if one["encoding"] == "base64" else one["content"].encode()
            need("draft content", reader.encode(content)[0] == one["encoding"])
    need("draft files", "files" not in draft or 1 <= len(paths) <= 1024 and "SKILL.md" in paths and paths == sorted({*paths}), "draft_files")
    need("draft base", base == current_bundle_hash or draft["kind"] == "propose" and base is None, "draft_base")


def check_policy(policy):
    members = lambda value, name: [text for one in value for text in one.get(name, [])]
    channels = [channel for one in policy.get("callers", {}).values() for channel in one.get("channels", [])]
    named_groups = members([*policy.get("profiles", {}).values()], "groups") + [name for one in channels + policy.get("rules", []) for part in NAMED for name in one.get(part, [])]
    named_profiles = [one["profile"] for one in [*policy.get("callers", {}).values(), *channels] if "profile" in one] + members(policy.get("rules", []), "profiles")
    named_profiles += [policy["default_profile"]] if "default_profile" in policy else []
    need("policy groups", {*named_groups} <= {*policy.get("groups", {}), "*"}, "policy_unknown_name")
    need("policy profiles", {*named_profiles} <= {*policy.get("profiles", {})}, "policy_unknown_name")
    need("policy servers", {*members(policy.get("groups", {}).values(), "mcp_servers")} <= {*policy.get("mcp_servers", {})}, "policy_unknown_name")
    for rule in policy.get("rules", []):
        need("policy regex", not re.search(r"\\[1-9]|\(\?(<?[=!]|P=)", rule["when"]), "policy_regex")


def policy_text(data):
    try:
        value = tomllib.loads(data.decode())
    except ValueError:
        raise Refused("policy_schema") from None
    with refusing("policy_schema"):
        need("policy members", {*value} <= {*POLICY})
    policy = plain(parse(canonical(value), POLICY, "policy_schema", signed=False))
    check_policy(policy)
    return policy


def judge_format(kind, data, context, chain):
    reader = Role()
    reader.chain = chain
    if kind == "manifest":
        envelope = parse(data, lambda value: Envelope(of_kind("envelope", value)), "manifest_schema", signed=False)
        reader.place = "library"
        reader.read_manifest(envelope, context["name"], context["version"])
        need("manifest stored", context["version"] >= context["stored_version"], "manifest_version")
    elif kind == "bundle":
        reader.place, reader.fetch = "archive listed", lambda sha, size: data
        data = reader.take(SimpleNamespace(**context))
        del reader.fetch
        reader.read_bundle(data, context["name"], context["version"])
    elif kind == "index":
        reader.read_index(data)
    elif kind == "profile":
        parse(data, "profile", "profile_schema", signed=False)
    elif kind == "draft":
        check_draft(plain(parse(data, "draft", "draft_schema", signed=False)), context["slug"], context["vault_id"], context["current_bundle_hash"])
    elif kind == "policy":
        policy_text(data)
    elif kind == "policy_object":
        check_policy(plain(parse(data, "policy", "policy_schema", signed=False)))
    else:
        skill_md.read(data)
    return "ok"


def run_formats():
    NAMES.update(read(FORMATS / "roots.json"))
    KEYS.update(read(FORMATS / "keys.json"))
    versions = lambda names: read_chain(pairs([NAMES[name] for name in names]))
    for file in ("accept.json", "negative.json"):
        cases = read(FORMATS / file)
        for case in cases["cases"]:
            context = {**cases["context"], **cases.get("contexts", {}).get(case["kind"], {}), **case["context"]}
            bytes_given = base64.b64decode(case["bytes_base64"]) if "bytes_base64" in case else case["bytes"].encode() if "bytes" in case else None
            data = (FORMATS / case["file"]).read_bytes() if bytes_given is None else bytes_given
            wanted = case.get("error", "ok")
            if case["kind"] == "catalog":
                reader = reader_of({"latest_seen_at": None, "expect_key": None, "revoked": [], "signed": {}, "taken_over": [], **context})
                word, result = outcome(lambda: reader.take_catalog(data)), case.get("result")
                word = "ok" if word == "equal" else word
                got = result and {"public_key": reader.stored.public_key, "root_version": reader.stored.root_version,
                                  "stored": {name: vars(reader.stored)[name] for name in ("release", "payload_sha256")}}
                check("formats/" + file, case.get("id", case.get("why")), (word, got), (wanted, result))
            else:
                word = outcome(lambda: judge_format(case["kind"], data, context, versions(context["roots"])))
                check("formats/" + file, case["id"], word, wanted)
    for part, folder in (("roots", ROOTS), ("formats", FORMATS)):
        for one in read(folder / "files.json")["files"]:
            data = (folder / one["file"]).read_bytes()
            check(part + "/files.json", one["file"], (len(data), sha256(data)), (one["size"], one["sha256"]))
    for case in read(FORMATS / "parts.json")["cases"]:
        bundle, parts = made_bundle(case)
        got = sha256(bundle), len(bundle), {path: [{"bundle_hash": sha256(one), "size": len(one)} for one in made] for path, made in parts.items()}
        check("formats/parts.json", case["why"], got, (case["bundle_hash"], case["bundle_size"], case["parts"]))
    for case in read(FORMATS / "provenance.json")["cases"]:
        check("formats/provenance.json", case["identifier"], provenance_kind(case["identifier"]) == case["kind"], case["valid"])
    for name, wanted in (("SKILL.md", "expected.json"), ("SKILL-metadata.md", "expected-metadata.json")):
        check("formats/skill-md", name, outcome(lambda: skill_md.read((FORMATS / "skill-md" / name).read_bytes())), read(FORMATS / "skill-md" / wanted))
    policy, = FORMATS.glob("policy-*.json")
    written = json.loads(canonical(policy_text((FORMATS / "policy.toml").read_bytes())))
    check("formats/policy.toml", "as an object", {"schema": "vault.policy/1", **written}, json.loads(policy.read_bytes()))


def request_is_good(method, path, headers, now):
    """H3 to H6."""
    need("H3", {*headers} == {"X-Vault-Device", "X-Vault-Timestamp", "X-Vault-Signature"})
    device, at, signature = headers["X-Vault-Device"], headers["X-Vault-Timestamp"], headers["X-Vault-Signature"]
    of_kind("key", device)
    need("H4 time", re.fullmatch("0|[1-9][0-9]{0,19}", at))
    need("H4 signature", re.fullmatch("[A-Za-z0-9_-]{85}[AQgw]", signature))
    need("H5", abs(int(at) - now) <= 300)
    return verifies(device, key_bytes(signature), f"{method}\n{path}\n{at}".encode())


def run_requests():
    global again
    requests = read(VECTORS / "device-requests.json")
    secrets = {one["public_key"]: bytes.fromhex(one["seed_hex"]) for one in requests["keys"]}
    for part in ("requests", "enrolments"):
        for one in requests[part]:
            good = outcome(lambda: request_is_good(one["method"], one["path"], one["headers"], one["server_now"]))
            got, wanted = ["signature_ok" if good is True else "signature_refused"], [one["expect"]]
            if part == "requests" and one["expect"] == "signature_ok":
                signed = signed_headers(secrets[one["headers"]["X-Vault-Device"]], one["method"], one["path"], int(one["headers"]["X-Vault-Timestamp"]))
                again += 1
                if signed != one["headers"]:
                    failures.append(one["name"])
                    print(one["name"], "is signed otherwise:", signed)
            if part == "enrolments":
                body = {"public_key": "text", "hostname": {"optional": "text"}}
                status = outcome(lambda: parse(canonical(one["body"]), body, 400, signed=False))
                got.append("2xx" if getattr(status, "public_key", None) == one["headers"]["X-Vault-Device"] else 400)
                wanted.append(one["expect_status"])
            check("device-requests.json", one["name"], got, wanted)


def key_request(data, vault, slug):
    """Q1 to Q4."""
    need("Q1", len(data) <= 4096)
    envelope = parse(data, lambda value: Envelope(of_kind("envelope", value)), None, signed=False)
    need("Q1 type", envelope.kind == "application/vnd.vault.key-request.v1+json")
    request = parse(envelope.payload, "key request", None)
    need("Q3", envelope.signers([request.public_key]))
    need("Q4 vault", request.vault_id == vault)
    need("Q4 slug", request.slug == slug)
    return True


def run_key_requests():
    for one in read(FORMATS / "key-requests.json")["cases"]:
        got = outcome(lambda: key_request(one["bytes"].encode(), one["vault_id"], one["slug"]))
        check("formats/key-requests.json", one["why"], got, True if one["good"] else None)


def run_keys():
    """K1 to K5 and S1 to S4, one by one."""
    cases, text_of = read(VECTORS / "ed25519.json"), lambda data: base64.urlsafe_b64encode(bytes.fromhex(data)).decode().rstrip("=")
    for one in cases["keys"] + cases["texts"]:
        value = one["text"] if "text" in one else text_of(one["bytes"])
        check("ed25519.json", one.get("why", value), outcome(lambda: of_kind("key", value)) == value, one["good"])
    for one in cases["signatures"]:
        signature, message = bytes.fromhex(one["signature"]), bytes.fromhex(one["message"])
        check("ed25519.json", one["why"], len(signature) == 64 and verifies(text_of(one["key"]), signature, message), one["good"])


def numbers():
    """How many cases each file has, by the file itself."""
    content = {file: read(VECTORS / file) for file in read(VECTORS / "manifest.json")["cases"] if file.endswith(".json")}
    members = lambda file: [len(content[file][part]) for part in ("cases", "chains", "files", "texts", "signatures", "accept", "refuse", "requests", "enrolments") if part in content[file]]
    found = {file: sum(members(file)) for file in content}
    found["ed25519.json"] += len(content["ed25519.json"]["keys"])
    found["roots/stories.json"] = sum(len(story["steps"]) for story in content["roots/stories.json"]["stories"])
    return {**found, "formats/skill-md": len([*(FORMATS / "skill-md").glob("expected*.json")]), "formats/policy.toml": 1}


def members_of(kind):
    """All names of members in a table."""
    if not isinstance(kind, dict):
        return set()
    rules = {"list", "map", "names", "optional", "or null", "least", "most", "sorted", "unique"}
    own = {name for name in kind if name not in rules} if not rules & {*kind} else set()
    return own.union(*map(members_of, kind.values()))


def run_tables():
    """tables.json has the members of the pages' tables, no others, and errors of their checks."""
    pages = {page: (VECTORS.parent.parent / "docs" / page).read_text() for page in ("formats.md", "device-protocol.md")}
    for table, kind in TABLES.items():
        page = pages["device-protocol.md" if table == "device" else "formats.md"]
        for name in members_of(kind):
            if not re.search(rf"[`.\[\"]{re.escape(name)}[`.\[\"]", page):
                failures.append(f"tables.json {table}: no page has {name}")
                print(failures[-1])
    if not reader.SMALL_ORDER <= {bytes.fromhex(line) for line in re.findall("^[0-9a-f]{64}$", pages["formats.md"], re.MULTILINE)}:
        failures.append("K4")
        print("the encodings of small order are not those of the page")
    words = {*re.findall("`([a-z_]+)`", "".join(pages.values()))}
    for error in {*reader.GIVEN["errors"], *reader.GIVEN["exits"]}:
        if error not in words and not re.fullmatch("[0-9x]{3}", error) and error != "wrong_use":
            failures.append(f"tables.json: no page has the error {error}")
            print(failures[-1])


def run_checks():
    """checks.json says of every numbered check of the pages which case, host or test shows it, and each of these exists."""
    root, table = VECTORS.parent.parent, read(VECTORS / "checks.json")
    pages = "".join((root / "docs" / page).read_text() for page in ("formats.md", "device-protocol.md"))
    rows = re.findall(r"^\| ([A-Z][0-9]+) \|", pages, re.MULTILINE)
    if rows != [*table]:
        failures.append("checks.json")
        print("checks.json has other rows than the pages:", {*rows} ^ {*table})
    tests = "".join(path.read_text() for place in ("shared", "tests", "cli") for path in (root / place).rglob("*.rs"))
    hosts = (VECTORS / "servers.py").read_text()
    for row, shown in table.items():
        place, _, name = shown.partition(": ")
        if place == "test":
            there = re.search(rf"\bfn {name}\(", tests)
        elif place == "servers.py":
            there = f'yield "{name}"' in hosts
        else:
            there = re.search(rf'"(id|name|why|text)": {re.escape(json.dumps(name, ensure_ascii=False)[:-1])}', (VECTORS / place).read_text())
        if not there:
            failures.append(row)
            print(f"checks.json, {row}: there is no {shown}")


def run_cases():
    run_roots()
    run_formats()
    run_requests()
    run_keys()
    run_key_requests()


def main():
    """Whether every case ends as the vectors say, and none was left out."""
    run_tables()
    run_checks()
    run_cases()
    wanted, there = read(VECTORS / "manifest.json")["cases"], numbers()
    for file in {*wanted, *there, *counts}:
        if not counts.get(file) == there.get(file) == wanted.get(file):
            failures.append(file)
            print(f"{file}: {counts.get(file)} cases ran, {there.get(file)} are there, manifest.json says {wanted.get(file)}")
    print(f"{sum(counts.values())} of {sum(wanted.values())} cases of {len(wanted)} files, and {again} requests signed anew; {len(failures)} failed")
    return not failures


if __name__ == "__main__":
    sys.exit(0 if main() else 1)

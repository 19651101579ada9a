"""Catalogs, manifests and bundles, judged as docs/formats.md says. Checks have the names of that page."""

from dataclasses import dataclass, field

from formats import *

ROOT_NAMED = record(root_version=integer, root_sha256=HASH)
OBJECT = dict(bundle_hash=HASH, path=text, size=integer)
CATALOG_FILE = record(public_key=key, roots=typed(list), **ENVELOPE)
CATALOG = record(schema=constant("vault.catalog/2"), vault_id=VAULT_ID, slug=SLUG, audience=many(text), release=integer, issued_at=time,
                 expires_at=time, public_key=key, root_version=integer, root_sha256=HASH,
                 previous=maybe(record(release=integer, payload_sha256=HASH)),
                 skills=many(record(name=skill_name, version=integer, **OBJECT)), index=many(record(**OBJECT)),
                 policy=maybe(record(sha256=HASH, size=integer)), profiles=many(record(name=shown_text, agent=AGENT, **OBJECT)),
                 withdrawn=many(record(name=skill_name, bundle_hash=HASH, reason=text, since_release=integer)))


Skill = namedtuple("Skill", "version bundle_hash signer")


@dataclass
class Reader:
    """A device or a service, and what it keeps."""

    base: str = ""
    slug: str = ""
    now: str = ""
    latest_seen_at: str = None
    side: str = "device"
    chain: list = field(default_factory=list)
    elsewhere: set = field(default_factory=set)
    expected: str = None
    stored: dict = None  # the catalog that counted last, with `file`, `payload_sha256` and `signers`
    skills: dict = field(default_factory=dict)
    former: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)  # the files of each installed skill
    warnings: list = field(default_factory=list)
    fetch: object = None  # (hash, size) → bytes

    def take_roots(self, values):
        """C3. Returns the chain and the keys revoked elsewhere; keeps them where a refusal that follows does not matter."""
        shown = read_chain(values, self.chain)
        chain, elsewhere, self.warnings = choose_chain(self.chain, shown, self.elsewhere, self.expected)
        if self.side != "service" and (self.chain or self.expected):
            self.chain, self.elsewhere = chain, elsewhere
        return chain, elsewhere, shown

    def void(self, chain, elsewhere):
        return "void" not in OFF and not all(was_publishers(one, chain, elsewhere) for one in self.stored["signers"])

    def take_catalog(self, data, proposal=False):
        """C1 to C24 and the objects. Returns `ok` or `equal`. One signature is enough for a `proposal`."""
        need("C1", len(data) <= 4 * MIB, "catalog_schema")
        file = parse(data, CATALOG_FILE, "catalog_schema", signed=False)
        with refusing("catalog_schema"):
            envelope = envelope_of(file)
            need("E6", envelope.kind == "application/vnd.vault.catalog.v2+json")
        chain, elsewhere, shown = self.take_roots(file["roots"])
        newest, sha = chain[-1], sha256(envelope.payload)
        outside = file["public_key"], envelope.payload, set(envelope.entries)
        if self.side == "service" and self.stored and self.stored["file"] == outside and "C4" not in OFF:
            longer, self.chain, self.elsewhere = len(chain) > len(self.chain), chain, elsewhere
            return "ok" if longer else "equal"

        carries_newest = shown[-1].sha == newest.sha
        role, without = newest.doc["release"], elsewhere if "elsewhere" not in OFF else set()
        counted = [one for one in envelope.signed_by(role["keys"]) if one not in without]
        try:
            if len(counted) < (1 if proposal else role["threshold"]) and "C5" not in OFF:
                self.awaits(envelope, chain, without, carries_newest, proposal)
            catalog = parse(envelope.payload, CATALOG, "catalog_schema")
            catalog_shape(catalog)
            if (number := catalog["root_version"], catalog["root_sha256"]) != (len(chain), newest.sha):
                need("C8", 1 <= number < len(chain) and chain[number - 1].sha == catalog["root_sha256"], "root_invalid")
                need("C8 older", False, "release_awaited" if carries_newest else "root_rolled_back")
        except Refused as refusal:
            if refusal.args[0] == "release_awaited" and self.side == "device":
                self.chain, self.elsewhere = chain, elsewhere
            raise
        need("C9", catalog["public_key"] == file["public_key"], "catalog_key")
        need("C10", catalog["public_key"] in counted, "catalog_key")
        need("C11", catalog["vault_id"] == vault_id(chain), "catalog_vault_id")
        need("C12", catalog["slug"] == self.slug, "catalog_slug")
        need("C13", f"{self.base}/v/{self.slug}/" in catalog["audience"], "catalog_audience")
        self.clock(catalog, newest.doc["expires_at"])
        catalog.update(file=outside, payload_sha256=sha, signers=sorted(counted))
        if self.stored and self.follows(catalog, chain, elsewhere):
            self.stored = {**self.stored, "signers": sorted(counted), "file": outside}
            self.chain, self.elsewhere = chain, elsewhere
            return "equal"
        self.skills_follow(catalog, chain, elsewhere)
        skills, files = self.take_objects(catalog, chain, elsewhere)
        self.former = {name: skill for name, skill in {**self.former, **self.skills}.items() if name not in skills}
        self.stored, self.skills, self.files, self.chain, self.elsewhere = catalog, skills, files, chain, elsewhere
        self.latest_seen_at = max(self.now, self.latest_seen_at or self.now)
        return "ok"

    def awaits(self, envelope, chain, without, carries_newest, proposal):
        """C6: always a refusal."""
        with refusing("signatures_missing"):
            number, sha = parse(envelope.payload, ROOT_NAMED, "signatures_missing").values()
            need("C6 newest", carries_newest)
            need("C6 older", 1 <= number < len(chain) and chain[number - 1].sha == sha)
            role = chain[number - 1].doc["release"]
            need("C6 reached", reaches(envelope, {**role, "threshold": 1} if proposal else role, without))
            raise Refused("release_awaited")

    def clock(self, catalog, root_expires):
        issued, expires, now = seconds(catalog["issued_at"]), seconds(catalog["expires_at"]), seconds(self.now)
        judged = now if self.side == "service" or "latest seen" in OFF else max(now, seconds(self.latest_seen_at or self.now))
        word = "release_expired" if judged == now else "catalog_clock"
        need("C14", 86400 <= expires - issued <= 400 * 86400, "catalog_clock")
        need("C15", self.side != "service" or issued <= now + 300, "catalog_clock")
        need("C16", judged <= expires, word)
        need("C17", not root_expires or judged <= seconds(root_expires), word)
        need("C18", not root_expires or expires <= seconds(root_expires), "catalog_clock")

    def follows(self, catalog, chain, elsewhere):
        """C19 to C21. Whether it is the stored release."""
        if self.void(chain, elsewhere):
            return False
        stored, previous = self.stored, catalog["previous"]
        need("C19", catalog["release"] >= stored["release"], "catalog_release")
        if catalog["release"] == stored["release"]:
            need("C19 equal", catalog["payload_sha256"] == stored["payload_sha256"], "catalog_release")
            return True
        need("C20", catalog["root_sha256"] != stored["root_sha256"] or catalog["release"] <= stored["release"] + 1_000_000, "catalog_release")
        need("C21 null", previous, "catalog_previous")
        need("C21 service", self.side != "service" or previous["release"] == stored["release"], "catalog_previous")
        if previous and previous["release"] == stored["release"]:
            need("C21 hash", previous["payload_sha256"] == stored["payload_sha256"], "catalog_previous")
        return False

    def skills_follow(self, catalog, chain, elsewhere):
        """C22 to C24."""
        same_root = self.stored and catalog["root_sha256"] == self.stored["root_sha256"]
        had = ("C22", self.skills), ("C24", self.former)
        for check, known in had if self.side == "device" else reversed(had):
            for skill in catalog["skills"]:
                before = known.get(skill["name"])
                if not before or not was_publishers(before.signer, chain, elsewhere) and "void skill" not in OFF:
                    continue
                need(check, skill["version"] >= before.version, "skill_rolled_back")
                need(check + " hash", skill["version"] != before.version or skill["bundle_hash"] == before.bundle_hash, "skill_rolled_back")
                need("C23", check == "C24" or not same_root or skill["version"] <= before.version + 1_000_000, "catalog_release")

    def take_objects(self, catalog, chain, elsewhere):
        """Fetches and checks everything that the catalog names. Returns the skills and their files."""
        skills, files, sizes = {}, {}, {skill["bundle_hash"]: skill for skill in catalog["skills"]}
        judge = lambda data, skill: read_bundle(data, chain, elsewhere, "catalog", skill["name"], skill["version"], self.fetch)
        for skill in catalog["skills"]:
            signer, files[skill["name"]] = judge(self.object(skill), skill)
            skills[skill["name"]] = Skill(skill["version"], skill["bundle_hash"], signer)
        listed = [(entry["name"], entry["bundle_hash"]) for one in catalog["index"]
                  for entry in parse(self.object(one), index(catalog["vault_id"]), "index_schema", signed=False)["skills"]]
        need("index lists", listed == [(skill["name"], skill["bundle_hash"]) for skill in catalog["skills"]], "index_schema")
        for one in catalog["profiles"]:
            profile = parse(self.object(one), PROFILE, "profile_schema", signed=False)
            need("profile agent", profile["agent"] == one["agent"], "profile_schema")
            for variant in [variant for variant in profile["skills"] if variant["bundle_hash"] not in sizes]:
                need("profile skill", variant["name"] in skills, "profile_schema")
                judge(self.object(variant), {"name": variant["name"], "version": skills[variant["name"]].version})
        return skills, files

    def object(self, named_object):
        return sized(self.fetch(named_object["bundle_hash"], named_object["size"]), named_object)


def sized(data, named_object, word="bundle"):
    """O1 and O2."""
    need("O1", len(data) == named_object["size"] <= 4 * MIB, word + "_size")
    need("O2", sha256(data) == named_object["bundle_hash"], word + "_hash")
    return data


def catalog_shape(catalog):
    """What the table of the catalog says beyond types."""
    objects = catalog["skills"] + catalog["index"] + catalog["profiles"]
    need("C7 withdrawn", len(catalog["withdrawn"]) <= 1000, "catalog_withdrawn")
    withdrawn = {one["bundle_hash"] for one in catalog["withdrawn"]}
    with refusing("catalog_schema"):
        need("C7 release", catalog["release"] >= 1)
        need("C7 version", all(skill["version"] >= 1 for skill in catalog["skills"]))
        need("C7 sorted", increasing([skill["name"] for skill in catalog["skills"]]))
        need("C7 path", all(one["path"] == f"bundles/{one['bundle_hash']}.json" for one in objects))
        need("C7 size", all(one["size"] <= 4 * MIB for one in objects + [catalog["policy"] or {"size": 0}]))
        names = [one["name"] for one in catalog["profiles"]]
        need("C7 profiles", len(set(names)) == len(names) and all(names))
        need("C7 withdrawn twice", len(withdrawn) == len(catalog["withdrawn"]))
        need("C7 withdrawn listed", not withdrawn & {skill["bundle_hash"] for skill in catalog["skills"]})
        need("C7 reason", not any("\0" in one["reason"] for one in catalog["withdrawn"]))


# --- manifests ------------------------------------------------------------------------------------

FLAG = record(rule=text, path=text, line=integer)
ACTIONS = record(command=text, args=many(text), cwd=text, description=optional(text), requires_tty=optional(flag))
MANIFEST = record(
    schema=constant("vault.skill-manifest/2"), vault_id=VAULT_ID, name=text, frontmatter_name=optional(text), version=integer, signed_at=time,
    files=many(record(path=text, size=integer, sha256=HASH, mode=text)), actions=mapping(ACTIONS), agents=many(AGENT),
    rendered_from=optional(record(bundle_hash=HASH, agent=AGENT, transforms=many(record(name=text, sha256=HASH)))),
    provenance=record(identifier=text, kind=text, revision=maybe(text), fetched_at=time),
    gate=record(strict=flag, rules=text, flags=many(FLAG), waivers=optional(many(record(rule=text, sha256=HASH, reason=text)))))


NAME, DEVICES = "[a-z0-9]+(-[a-z0-9]+)*", "|".join(map(re.escape, DEVICE_NAMES))
PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
HOST = rf"([a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:.]+\])(:({PORT}))?"
SEGMENT = r"(?!\.{1,2}(/|$))[^/\s\\#?@:]+"
PLACE = f"{SEGMENT}(/{SEGMENT})*"
PATH = r"/((?!\.{1,2}([/?]|$))[^/\s\\#?]+/)*((?!\.{1,2}([/?]|$))[^/\s\\#?]+)?"
PROVENANCE = [("local", r"local:(?!\.{1,2}$| )[^/\\]*[^/\\ ]"), ("code-host", f"git:(?!.*///)(https|ssh)://{HOST}{PATH}(//{PLACE})?"),
              ("code-host", f"git(hub|lab):{SEGMENT}/{PLACE}"), ("https", rf"https:https://{HOST}{PATH}(\?[^\s\\#]*)?"),
              ("wellknown", f"wellknown:https://{HOST}/{SEGMENT}"), ("registry", f"registry:{SEGMENT}/{PLACE}"), ("inline", r"inline:[^/\s\\]+"),
              ("vault", rf"vault:(https://{HOST}|http://(localhost|127\.0\.0\.1|\[::1\])(:({PORT}))?)(/{PLACE})?/v/{NAME}/(?!({DEVICES})$){NAME}")]


def check_path(path, word):
    """P1 to P8."""
    segments = path.split("/")
    with refusing(word):
        need("P1", 1 <= len(path.encode()) <= 255 and len(segments) <= 16 and all(len(one.encode()) <= 100 for one in segments))
        need("P2", printable(path) and not re.search(r'[\\:*?"<>|]', path))
        need("P3", unicodedata.normalize("NFC", path) == path)
        need("P4", not {"", ".", ".."} & {*segments})
        need("P5", not any(one.endswith((".", " ")) for one in segments))
        need("P6", not any(one.split(".")[0].rstrip(" ").lower() in DEVICE_NAMES for one in segments))
        need("P7", not {".git", "git~1"} & {one.lower() for one in segments})
        need("P8", not path.lower().startswith(".vault"))


def folders_of(paths):
    return {path[:at] for path in paths for at in range(len(path)) if path[at] == "/"}


def check_paths(paths, word):
    """P9."""
    folders, folded = folders_of(paths), {}
    for one in {*paths} | folders:
        fold = unicodedata.normalize("NFC", unicodedata.normalize("NFC", one).casefold())
        need("P9", folded.setdefault(fold, one) == one, word)
    need("P9 parent", not folders & {*paths}, word)


def provenance_kind(identifier):
    """The kind of this form; None if it has none."""
    bad = len(identifier.encode()) > 2048 or HIDDEN.search(identifier) or re.search(r"\s", identifier.replace(" ", ""))
    return None if bad else next((kind for kind, form in PROVENANCE if re.fullmatch(form, identifier)), None)


def check_manifest(manifest):
    """M3 beyond types."""
    files, (identifier, kind, revision, _) = manifest["files"], manifest["provenance"].values()
    with refusing("manifest_name"):
        skill_name(manifest["name"])
        shown_text(manifest.get("frontmatter_name", ""))
    need("M3 version", manifest["version"] >= 1, "manifest_version")
    for one in files:
        check_path(one["path"], "manifest_path")
    paths = [one["path"] for one in files]
    need("M3 files", 1 <= len(files) <= 1024 and "SKILL.md" in paths, "manifest_files")
    need("M3 sorted", increasing([path.encode() for path in paths]), "manifest_files")
    check_paths(paths, "manifest_path")
    need("M3 mode", all(one["mode"] in ("0644", "0755") for one in files), "manifest_mode")
    need("M3 size", all(one["size"] <= (MIB // 4 if one["path"] == "SKILL.md" else 4 * MIB) for one in files), "manifest_size")
    need("M3 sum", sum(one["size"] for one in files) <= 16 * MIB, "manifest_size")
    folders = {".", *folders_of(paths)}
    with refusing("manifest_actions"):
        for name, action in manifest["actions"].items():
            ACTION(name)
            shown_text(action.get("description", ""))
            need("M3 command", action["command"] in paths or re.fullmatch("(?![.-])[A-Za-z0-9._+-]{1,100}", action["command"]))
            need("M3 args", len(action["args"]) <= 64 and not any("\0" in one for one in action["args"]))
            need("M3 cwd", action["cwd"] in folders)
    need("M3 provenance", provenance_kind(identifier) == kind, "manifest_provenance")
    form = "[0-9a-f]{40}|[0-9a-f]{64}" if kind == "code-host" else f"[^{HIDDEN.pattern[1:]}+"
    need("M3 revision", revision is None or re.fullmatch(form, revision) and len(revision.encode()) <= 255, "manifest_provenance")


def signer_word(place, standing_here, taken_over, threshold):
    """M5: None if a signer of this standing counts in this place."""
    good, retired = standing_here == "release", standing_here == "retired"
    if place == "catalog":
        return None if standing_here in PUBLISHERS else "catalog_signer"
    if place == "archive listed" or place == "library" and taken_over:
        return None if good or retired else "manifest_signature"
    if place == "archive" and good and threshold > 1:
        return "release_awaited"
    return "signer_retired" if retired else None if good else "manifest_signature"


def read_manifest(envelope, chain, elsewhere, place, name=None, version=None, taken_over=False):
    """M1 to M7. Returns the signer and the manifest."""
    with refusing("manifest_schema"):
        need("M1", len(envelope.entries) == 1)
        need("M1 type", envelope.kind == "application/vnd.vault.skill-manifest.v2+json")
    signer, = envelope.signed_by(sorted(named(one.doc for one in chain))) or [None]
    word = lambda of: signer_word(place, of, taken_over, chain[-1].doc["release"]["threshold"])
    need("M2", signer, word("unknown"))
    manifest = parse(envelope.payload, MANIFEST, "manifest_schema")
    check_manifest(manifest)
    need("M4", manifest["vault_id"] == vault_id(chain), "manifest_vault_id")
    refusal = word(standing(signer, chain, elsewhere))
    need("M5", not refusal, refusal)
    need("M6", name is None or manifest["name"] == name, "manifest_name")
    need("M7", version is None or manifest["version"] == version, "manifest_version")
    return signer, manifest


# --- bundles and other objects --------------------------------------------------------------------

BUNDLE = record(schema=constant("vault.bundle/1"), manifest=record(**ENVELOPE),
                files=many(record(path=text, encoding=text, content=optional(text), parts=optional(many(record(bundle_hash=HASH, size=integer))))))
PART = record(schema=constant("vault.part/1"), content=text)
PART_BYTES = 3_000_000


def encode(data):
    """Rule 1: the encoding of a file, and its content."""
    try:
        if b"\0" not in data:
            return "utf-8", data.decode()
    except UnicodeDecodeError:
        pass
    return "base64", base64.b64encode(data).decode()


def part_objects(data):
    pieces = [data[at:at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    return [canonical({"schema": "vault.part/1", "content": base64.b64encode(piece).decode()}) for piece in pieces]


HEAD = '{"schema":"vault.bundle/1","manifest":'


def write_bundle(manifest, files):
    """Rules 2 and 3, around these bytes of the manifest's envelope. Returns the bundle, and the part objects of the files that are in parts."""
    inline = {path: dict(zip(("path", "encoding", "content"), (path, *encode(data)))) for path, data in files.items()}
    lengths, parts = {path: len(canonical(one["content"])) - 2 for path, one in inline.items()}, {}
    while True:
        whole = HEAD.encode() + manifest + b',"files":' + canonical(list(inline.values())) + b"}"
        over = [path for path, length in lengths.items() if length > MIB and "B7 rule 2" not in OFF and path not in parts]
        if not over and (len(whole) <= 4 * MIB or "B7 rule 3" in OFF):
            return whole, parts
        chosen = over[0] if over else max((length, path.encode(), path) for path, length in lengths.items() if path not in parts)[2]
        parts[chosen] = part_objects(files[chosen])
        inline[chosen] = {"path": chosen, "encoding": "parts", "parts": [{"bundle_hash": sha256(one), "size": len(one)} for one in parts[chosen]]}


def read_bundle(data, chain, elsewhere, place, name, version, fetch, taken_over=False):
    """B1 to B8, without B9. Returns the signer, and bytes and mode of each file."""
    bundle = parse(data, BUNDLE, "bundle_schema", signed=False)
    for one in bundle["files"]:
        need("B1 encoding", one["encoding"] in ("utf-8", "base64", "parts"), "bundle_encoding")
        need("B1 content", ("content" in one) != ("parts" in one) == (one["encoding"] == "parts"), "bundle_schema")
        need("B1 parts", "parts" not in one or 1 <= len(one["parts"]) <= 2, "bundle_parts")
    parts = [part for one in bundle["files"] for part in one.get("parts", [])]
    need("B1 part size", all(part["size"] <= 4 * MIB for part in parts) and sum(part["size"] - 64 for part in parts) <= 22_369_624, "bundle_parts")
    with refusing("manifest_schema"):
        envelope = envelope_of(bundle["manifest"])
    signer, manifest = read_manifest(envelope, chain, elsewhere, place, name, version, taken_over)
    need("B3", [one["path"] for one in bundle["files"]] == [one["path"] for one in manifest["files"]], "bundle_files")
    files = {}
    for one, signed in zip(bundle["files"], manifest["files"]):
        if one["encoding"] == "parts":
            content = join_parts(one["parts"], signed["size"], fetch)
        else:
            with refusing("bundle_encoding"):
                content = standard_base64(one["content"], "B4") if one["encoding"] == "base64" else one["content"].encode()
                need("B4 encoding", encode(content)[0] == one["encoding"])
        need("B6", (len(content), sha256(content)) == (signed["size"], signed["sha256"]), "bundle_content")
        files[one["path"]] = content
    try:
        raw_manifest = data.decode()[len(HEAD):json.JSONDecoder().raw_decode(data.decode(), len(HEAD))[1]].encode()
    except ValueError:
        raise Refused("bundle_refused") from None
    rewritten, in_parts = write_bundle(raw_manifest, files)
    need("B7", {*in_parts} == {one["path"] for one in bundle["files"] if "parts" in one}, "bundle_encoding")
    need("B8", sha256(rewritten) == sha256(data), "bundle_refused")
    return signer, {one["path"]: (files[one["path"]], one["mode"]) for one in manifest["files"]}


def join_parts(parts, size, fetch):
    """B5."""
    need("B5 count", len(parts) == -(-size // PART_BYTES), "bundle_parts")
    whole = b""
    with refusing("bundle_parts"):
        for part in parts:
            data = fetch(part["bundle_hash"], part["size"])
            need("B5 size", len(data) == part["size"])
            need("B5 hash", sha256(data) == part["bundle_hash"])
            content = standard_base64(parse(data, PART, "bundle_parts", signed=False)["content"])
            need("B5 place", len(content) == min(PART_BYTES, size - len(whole)))
            whole += content
    return whole


def sorted_by_name(value, check):
    need(check, increasing([skill["name"].encode() for skill in value["skills"]]))
    return value


def index(vault):
    kind = record(schema=constant("vault.index/2"), vault_id=VAULT_ID, skills=many(record(
        name=skill_name, bundle_hash=HASH, description=text, tags=many(text), categories=many(text), when_to_use=text, agents=many(AGENT), actions=many(ACTION))))
    return lambda value: need("index vault", kind(value)["vault_id"] == vault) or sorted_by_name(kind(value), "index sorted")


def PROFILE(value):
    profile = record(schema=constant("vault.profile/1"), name=shown_text, agent=AGENT, skills=many(record(name=skill_name, bundle_hash=HASH, size=integer)))(value)
    need("profile name", 1 <= len(profile["name"]) <= 64)
    return sorted_by_name(profile, "profile sorted")

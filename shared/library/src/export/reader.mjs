// Verifies a site that `vault export well-known` wrote: in a browser on the page beside it, or with
//
//   node reader.mjs FOLDER-OR-ADDRESS [--expect-key FINGERPRINT]
//
// Written from docs/formats.md of vault, whose names the checks have; only B9 is left out, which concerns what a skill may run. It needs nothing
// but WebCrypto. Exit: 0 as signed, 6 refused, 3 a release must be awaited, 2 no fingerprint was given or wrong use.

const MIB = 1 << 20;
const INDEX = '.well-known/agent-skills/index.json';
const SCHEMA = 'https://schemas.agentskills.io/discovery/0.2.0/schema.json';

/** A refusal with its word; undefined until the object is known that was being read. */
export class Refused extends Error {
    constructor(word) {
        super(word);
        this.word = word;
    }
}

export function need(holds, word) {
    if (!holds) throw new Refused(word);
}

/** Gives this word to refusals inside that have none yet. */
async function refusing(word, work) {
    try {
        return await work();
    } catch (fault) {
        throw fault instanceof Refused && !fault.word ? new Refused(word) : fault;
    }
}

// --- bytes ----------------------------------------------------------------------------------------

const encode = (text) => new TextEncoder().encode(text);
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
const hash = async (bytes) => new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
export const sha256 = async (bytes) => hex(await hash(bytes));
const equal = (one, other) => one.length === other.length && one.every((byte, place) => byte === other[place]);

function join(parts) {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
    return whole;
}

function toBase64(bytes) {
    let text = '';
    for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    return btoa(text);
}

/** E3: standard base64 that is canonical. */
function fromBase64(text) {
    let raw;
    try {
        raw = atob(text);
    } catch {
        throw new Refused();
    }
    need(btoa(raw) === text);
    return Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
}

const keyBytes = (text) => Uint8Array.from(atob(`${text.replaceAll('-', '+').replaceAll('_', '/')}=`), (letter) => letter.charCodeAt(0));

/** The base32 of a SHA-256, in lower case. */
function base32(digest) {
    const bits = Array.from(digest, (byte) => byte.toString(2).padStart(8, '0')).join('');
    return bits.match(/.{5}/g).map((five) => 'abcdefghijklmnopqrstuvwxyz234567'[parseInt(five, 2)]).join('');
}

const groups = (digest) => base32(digest).slice(0, 32).match(/.{4}/g).join('-');
export const keyFingerprint = async (key) => `pub:${groups(await hash(keyBytes(key)))}`;

// --- JSON -----------------------------------------------------------------------------------------

/** The members of an object in their order, repetitions included. */
class Members extends Array {}
/** A number that no table allows. */
const ODD = Symbol('number');

/** J1 to J5 and J7, as far as they need no table. */
function parseJson(bytes, signed) {
    let text;
    try {
        text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
        throw new Refused();
    }
    let at = 0;
    const skip = () => { while (at < text.length && ' \t\n\r'.includes(text[at])) at += 1; };
    const take = (letter) => (skip(), need(text[at] === letter), at += 1);
    const next = (letter) => (skip(), text[at] === letter && (at += 1, true));
    const word = (expression) => {
        expression.lastIndex = at;
        const found = expression.exec(text);
        need(found);
        at += found[0].length;
        return found[0];
    };
    const string = () => {
        const start = at;
        take('"');
        while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
        need(at < text.length);
        at += 1;
        try {
            const value = JSON.parse(text.slice(start, at).trimStart());
            need(value.isWellFormed());
            return value;
        } catch {
            throw new Refused();
        }
    };
    const number = () => {
        const raw = word(/-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y);
        const good = /^(?:0|[1-9][0-9]{0,15})$/.test(raw) && Number(raw) <= Number.MAX_SAFE_INTEGER;
        need(good || !signed);
        return good ? Number(raw) : ODD;
    };
    const list = (into, close, depth, element) => {
        need(depth <= 32);
        at += 1;
        if (next(close)) return into;
        do into.push(element()); while (next(','));
        take(close);
        return into;
    };
    const value = (depth) => {
        skip();
        const first = text[at];
        if (first === '{') {
            return list(new Members(), '}', depth, () => {
                skip();
                const name = string();
                take(':');
                return [name, value(depth + 1)];
            });
        }
        if (first === '[') return list([], ']', depth, () => value(depth + 1));
        if (first === '"') return string();
        if (first === 't' || first === 'f' || first === 'n') return { true: true, false: false, null: null }[word(/true|false|null/y)];
        return number();
    };
    skip();
    need(text[at] === '{');
    const whole = value(1);
    skip();
    need(at === text.length);
    return whole;
}

export const parse = (bytes, kind, word, signed = true) => refusing(word, () => kind(parseJson(bytes, signed)));

// --- types of the tables --------------------------------------------------------------------------

const optional = (kind) => Object.assign((value) => kind(value), { optional: true });
const typed = (holds) => (value) => (need(holds(value)), value);
const text = typed((value) => typeof value === 'string');
const integer = typed((value) => typeof value === 'number');
const flag = typed((value) => typeof value === 'boolean');
const pattern = (expression) => typed((value) => typeof value === 'string' && expression.test(value));
const constant = (wanted) => typed((value) => value === wanted);
const maybe = (kind) => (value) => (value === null ? null : kind(value));
const plainList = typed((value) => Array.isArray(value) && !(value instanceof Members));
const many = (kind) => (value) => plainList(value).map((one) => kind(one));

function record(table) {
    return (value) => {
        need(value instanceof Members);
        const found = new Map();
        for (const [name, member] of value) {
            if (!Object.hasOwn(table, name)) continue;
            need(!found.has(name));
            found.set(name, member);
        }
        const result = {};
        for (const [name, kind] of Object.entries(table)) {
            if (found.has(name)) result[name] = kind(found.get(name));
            else need(kind.optional);
        }
        return result;
    };
}

function mapping(kind) {
    return (value) => {
        need(value instanceof Members);
        const result = new Map(value.map(([name, member]) => [name, kind(member)]));
        need(result.size === value.length);
        return result;
    };
}

/** Seconds since 1970, or NaN where that second does not exist. */
function seconds(value) {
    const date = new Date(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/.test(value) ? value : NaN);
    return Number.isNaN(date.getTime()) || date.toISOString() !== `${value.slice(0, -1)}.000Z` ? NaN : date.getTime() / 1000;
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200d\u2028-\u202e\u2066-\u2069\ufeff]/;
const UNPRINTABLE = new RegExp(`[${('0-1F,7F-A0,AD,34F,600-605,61C,6DD,70F,890-891,8E2,115F-1160,1680,17B4-17B5,180B-180F,2000-200F,2028-202F,205F-206F,'
    + '3000,3164,D800-F8FF,FDD0-FDEF,FE00-FE0F,FEFF,FFA0,FFF0-FFFB,FFFE-FFFF,110BD,110CD,13430-1343F,1BCA0-1BCA3,1D173-1D17A,1FFFE-1FFFF,2FFFE-2FFFF,'
    + '3FFFE-3FFFF,4FFFE-4FFFF,5FFFE-5FFFF,6FFFE-6FFFF,7FFFE-7FFFF,8FFFE-8FFFF,9FFFE-9FFFF,AFFFE-AFFFF,BFFFE-BFFFF,CFFFE-CFFFF,DFFFE-E0FFF,EFFFE-10FFFF')
    .split(',').map((range) => range.split('-').map((code) => `\\u{${code}}`).join('-')).join('')}]`, 'u');
const DEVICE_NAMES = new Set(['con', 'prn', 'aux', 'nul', 'conin$', 'conout$', ...['com', 'lpt'].flatMap((port) => [...'123456789¹²³'].map((digit) => port + digit))]);
const NAME = /^(?=.{1,64}$)[a-z0-9]+(?:-[a-z0-9]+)*$/;
const HASH = pattern(/^[0-9a-f]{64}$/);
const VAULT_ID = pattern(/^vlt_[a-z2-7]{26}$/);
const SLUG = pattern(/^(?=.{1,63}$)[a-z0-9]+(?:-[a-z0-9]+)*$/);
const AGENT = pattern(/^[a-z0-9-]{1,64}$/);
const KEY_TEXT = pattern(/^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/); // K1
const ACTION = /^(?!(?:list|search|which)$)[a-z][a-z0-9-]{0,31}$/;
const TIME = typed((value) => typeof value === 'string' && !Number.isNaN(seconds(value)));
const skillName = typed((value) => typeof value === 'string' && NAME.test(value) && !DEVICE_NAMES.has(value));
const shownText = typed((value) => typeof value === 'string' && !HIDDEN.test(value));

/** Whether each text is below the next one by its UTF-8 bytes. */
function increasing(texts) {
    const bytes = texts.map(encode);
    const below = (one, other) => {
        const place = one.findIndex((byte, at) => byte !== other[at]);
        return place < 0 ? one.length < other.length : one[place] < (other[place] ?? -1);
    };
    return bytes.every((one, place) => place === 0 || below(bytes[place - 1], one));
}

// --- keys and signatures --------------------------------------------------------------------------

const P = 2n ** 255n - 19n;
const L = 2n ** 252n + 27742317777372353535851937790883648493n;
const mod = (number) => ((number % P) + P) % P;

function power(base, exponent) {
    let result = 1n;
    for (let square = mod(base), left = exponent; left; left >>= 1n, square = mod(square * square)) if (left & 1n) result = mod(result * square);
    return result;
}

const D = mod(-121665n * power(121666n, P - 2n));
const little = (bytes) => BigInt(`0x${hex(Uint8Array.from(bytes).reverse())}`);

/** The sum of two points (X, Y, Z, XY/Z). */
function add([x1, y1, z1, t1], [x2, y2, z2, t2]) {
    const [a, b, c, d] = [mod((y1 - x1) * (y2 - x2)), mod((y1 + x1) * (y2 + x2)), mod(2n * D * t1 * t2), mod(2n * z1 * z2)];
    const [e, f, g, h] = [b - a, d - c, d + c, b + a];
    return [mod(e * f), mod(g * h), mod(f * g), mod(e * h)];
}

/** Whether so many times the point is the neutral element. */
function vanishes(times, point) {
    let result = [0n, 1n, 1n, 0n];
    for (let double = point, left = times; left; left >>= 1n, double = add(double, double)) if (left & 1n) result = add(result, double);
    return result[0] === 0n && result[1] === result[2];
}

const goodKeys = new Map();

/** K1 to K5. */
export function key(value) {
    KEY_TEXT(value);
    if (!goodKeys.has(value)) goodKeys.set(value, isGoodKey(keyBytes(value)));
    need(goodKeys.get(value));
    return value;
}

function isGoodKey(bytes) {
    const [y, sign] = [little(bytes) & (2n ** 255n - 1n), BigInt(bytes[31] >> 7)];
    if (y >= P) return false; // K2
    const xx = mod((y * y - 1n) * power(D * y * y + 1n, P - 2n));
    let x = power(xx, (P + 3n) / 8n);
    if (mod(x * x) !== xx) x = mod(x * power(2n, (P - 1n) / 4n));
    if (mod(x * x) !== xx || x === 0n) return false; // K5: no point; K3, and two of K4
    if ((x & 1n) !== sign) x = P - x;
    const point = [x, y, 1n, mod(x * y)];
    return !vanishes(8n, point) && vanishes(L, point); // K4, K5
}

const ORDER_8 = ['26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc', 'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03'];
const SMALL_ORDER = new Set([`01${'00'.repeat(31)}`, `ec${'ff'.repeat(30)}7f`, '00'.repeat(32), `${'00'.repeat(31)}80`,
    `${ORDER_8[0]}05`, `${ORDER_8[0]}85`, `${ORDER_8[1]}7a`, `${ORDER_8[1]}fa`]);

/** S1 to S4. WebCrypto does S4 alone. */
export async function verifies(publicKey, signature, message) {
    if (signature.length !== 64 || little(signature.slice(32)) >= L || SMALL_ORDER.has(hex(signature.slice(0, 32)))) return false;
    const imported = await crypto.subtle.importKey('raw', keyBytes(publicKey), 'Ed25519', false, ['verify']);
    return crypto.subtle.verify('Ed25519', imported, signature, message);
}

// --- envelopes ------------------------------------------------------------------------------------

export const ENVELOPE = { payloadType: text, payload: text, signatures: many(record({ keyid: text, sig: text })) };
export const readRecord = record;

/** E2 to E5. */
export function readEnvelope(value) {
    const entries = value.signatures;
    need(entries.length >= 1 && entries.length <= 16);
    need(new Set(entries.map((entry) => entry.keyid)).size === entries.length);
    const decoded = entries.map((entry) => ({ keyid: entry.keyid, sig: fromBase64(entry.sig) }));
    need(decoded.every((entry) => entry.sig.length === 64));
    return { kind: value.payloadType, payload: fromBase64(value.payload), entries: decoded, text: JSON.stringify({
        payloadType: value.payloadType, payload: value.payload, signatures: entries.map(({ keyid, sig }) => ({ keyid, sig })) }) };
}

/** E7 and E8: which of these keys have a valid signature. */
export async function signedBy(envelope, keys) {
    const { kind, payload, entries } = envelope;
    const message = join([encode(`DSSEv1 ${encode(kind).length} ${kind} ${payload.length} `), payload]);
    const found = new Set();
    for (const one of keys) {
        const keyid = await sha256(keyBytes(one));
        const entry = entries.find((each) => each.keyid === keyid);
        if (entry && await verifies(one, entry.sig, message)) found.add(one);
    }
    return found;
}

const reaches = async (envelope, role) => (await signedBy(envelope, role.keys)).size >= role.threshold;

// --- root documents -------------------------------------------------------------------------------

const ROLE = record({ threshold: integer, keys: many(key) });
const ROOT = record({ schema: constant('vault.root/1'), vault_id: maybe(VAULT_ID), version: integer, previous_sha256: maybe(HASH), issued_at: TIME,
    expires_at: maybe(TIME), keys: many(record({ public_key: key, name: text })), root: ROLE, release: ROLE, revoked: many(KEY_TEXT) });

export function keyName(name) {
    need([...name].length >= 1 && [...name].length <= 64 && !UNPRINTABLE.test(name));
    need(!/^(?:pub|dev):(?:[a-z2-7]{4}-){7}[a-z2-7]{4}$/.test(name.trim()));
    return name;
}

function rootDocument(value) {
    const doc = ROOT(value);
    const { root, release, revoked } = doc;
    const [keys, first, shared] = [doc.keys.map((entry) => entry.public_key), doc.version === 1, root.keys.filter((one) => release.keys.includes(one))];
    need((doc.vault_id === null) === first && (doc.previous_sha256 === null) === first);
    need(doc.version >= 1 && doc.version <= 1024);
    const life = doc.expires_at === null ? 1 : seconds(doc.expires_at) - seconds(doc.issued_at);
    need(life > 0 && life <= 1200 * 86400);
    need([keys, root.keys, release.keys, revoked].every(increasing));
    need(new Set([...root.keys, ...release.keys]).size === keys.length && [...root.keys, ...release.keys].every((one) => keys.includes(one)));
    need(root.keys.length >= 1 && root.keys.length <= 8 && release.keys.length >= 1 && release.keys.length <= 32 && revoked.length <= 256);
    need([root, release].every((role) => role.threshold >= 1 && role.threshold <= Math.min(4, role.keys.length)));
    need(!revoked.some((one) => keys.includes(one)));
    need(shared.length === 0 || (shared.length === root.keys.length && root.threshold >= release.threshold));
    need(new Set(doc.keys.map((entry) => keyName(entry.name))).size === keys.length);
    return doc;
}

const named = (docs) => new Set(docs.flatMap((doc) => doc.keys.map((entry) => entry.public_key)));
export const vaultId = (chain) => `vlt_${base32(chain[0].digest).slice(0, 26)}`;

/** R1 to R13, place by place. The reader's own chain is `own`. */
export async function readChain(values, own = []) {
    need(values.length > 0, 'root_invalid');
    const chain = [];
    let [size, same] = [0, true];
    for (const value of values) {
        await refusing('root_invalid', async () => {
            const place = chain.length + 1;
            need(place <= 1024);
            const envelope = readEnvelope(record(ENVELOPE)(value));
            size += encode(envelope.text).length;
            need(size <= 512 * 1024); // R3
            const digest = await hash(envelope.payload);
            same = same && place <= own.length && equal(own[place - 1].digest, digest);
            chain.push(same ? own[place - 1] : await readVersion(envelope, digest, chain, place)); // R4
        });
    }
    return chain;
}

async function readVersion(envelope, digest, chain, place) {
    const before = chain.at(-1);
    need(!before || await reaches(envelope, before.doc.root)); // R5
    const other = /^application\/vnd\.vault\.root\.v([1-9][0-9]*)\+json$/.exec(envelope.kind);
    need(!other || other[1] === '1', 'newer_vault'); // R6
    need(other);
    const { schema } = await parse(envelope.payload, record({ schema: text }), 'root_invalid');
    need(!/^vault\.root\/(?!1$)[1-9][0-9]*$/.test(schema), 'newer_vault'); // R7
    need(envelope.payload.length <= 16384); // R8
    const doc = await parse(envelope.payload, rootDocument, 'root_invalid');
    need(await reaches(envelope, doc.root)); // R9
    need(doc.version === place); // R10
    if (before) {
        need(doc.vault_id === vaultId(chain) && doc.previous_sha256 === hex(before.digest)); // R11
        need(before.doc.revoked.every((one) => doc.revoked.includes(one))); // R12
        const [once, last] = [named(chain.map((one) => one.doc)), named([before.doc])];
        need([...named([doc])].every((one) => !once.has(one) || last.has(one))); // R13
    }
    return { envelope, digest, doc };
}

/** The chain that a reader follows who has `own` and is shown `shown`, with the keys revoked elsewhere and its warnings. */
export async function chooseChain(own, shown, elsewhere, expected) {
    const [warnings, shorter] = [[], Math.min(own.length, shown.length)];
    let [same, revoked] = [0, elsewhere];
    while (same < shorter && equal(own[same].digest, shown[same].digest)) same += 1;
    need(same > 0 || own.length === 0, 'vault_changed');
    const chain = same === shown.length ? own : shown;
    if (own.length && same < shorter) {
        const newest = own.at(-1).doc;
        need(shown.length > own.length, 'root_forked'); // F1
        for (const one of shown.slice(same)) need(await reaches(one.envelope, newest.root), 'root_forked'); // F2
        need(!newest.revoked.some((one) => named([shown.at(-1).doc]).has(one)), 'root_forked'); // F3
        revoked = new Set([...elsewhere, ...newest.revoked]);
        warnings.push('root_history_differs');
    }
    if (expected) {
        const [, stem, place] = /^(vlt:[a-z2-7-]+)\/([1-9][0-9]{0,3})$/.exec(expected) ?? [];
        need(chain[place - 1] && `vlt:${groups(chain[place - 1].digest)}` === stem, 'vault_changed');
        const roles = chain.slice(place - 1).map((one) => JSON.stringify(one.doc.root));
        if (roles.some((role) => role !== roles[0])) warnings.push('root_role_changed');
    }
    return { chain, elsewhere: revoked, warnings };
}

/** The fingerprint of the newest version whose root role differs from that of the version before. */
export function vaultFingerprint(chain) {
    let place = chain.length - 1;
    while (place > 0 && JSON.stringify(chain[place].doc.root) === JSON.stringify(chain[place - 1].doc.root)) place -= 1;
    return `vlt:${groups(chain[place].digest)}/${place + 1}`;
}

export function standing(publicKey, chain, elsewhere) {
    const newest = chain.at(-1).doc;
    if (newest.revoked.includes(publicKey) || elsewhere.has(publicKey)) return 'revoked';
    if (newest.release.keys.includes(publicKey)) return 'release';
    if (newest.root.keys.includes(publicKey)) return 'root only';
    return chain.some((one) => one.doc.release.keys.includes(publicKey)) ? 'retired' : 'unknown';
}

// --- manifests ------------------------------------------------------------------------------------

const ACTIONS = record({ command: text, args: many(text), cwd: text, description: optional(text), requires_tty: optional(flag) });
const MANIFEST = record({ schema: constant('vault.skill-manifest/2'), vault_id: VAULT_ID, name: text, frontmatter_name: optional(text), version: integer,
    signed_at: TIME, files: many(record({ path: text, size: integer, sha256: HASH, mode: text })), actions: mapping(ACTIONS), agents: many(AGENT),
    rendered_from: optional(record({ bundle_hash: HASH, agent: AGENT, transforms: many(record({ name: text, sha256: HASH })) })),
    provenance: record({ identifier: text, kind: text, revision: maybe(text), fetched_at: TIME }),
    gate: record({ strict: flag, rules: text, flags: many(record({ rule: text, path: text, line: integer })),
        waivers: optional(many(record({ rule: text, sha256: HASH, reason: text }))) }) });
const PORT = '0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]';
const HOST = `(?:[a-z0-9-]+(?:\\.[a-z0-9-]+)*|\\[[0-9a-f:.]+\\])(?::(?:${PORT}))?`;
const SEGMENT = '(?!\\.{1,2}(?:/|$))[^/\\s\\\\#?@:]+';
const PLACE = `${SEGMENT}(?:/${SEGMENT})*`;
const PATH = '/(?:(?!\\.{1,2}(?:[/?]|$))[^/\\s\\\\#?]+/)*(?:(?!\\.{1,2}(?:[/?]|$))[^/\\s\\\\#?]+)?';
const PROVENANCE = [['local', 'local:(?!\\.{1,2}$| )[^/\\\\]*[^/\\\\ ]'], ['code-host', `git:(?!.*///)(?:https|ssh)://${HOST}${PATH}(?://${PLACE})?`],
    ['code-host', `git(?:hub|lab):${SEGMENT}/${PLACE}`], ['https', `https:https://${HOST}${PATH}(?:\\?[^\\s\\\\#]*)?`],
    ['wellknown', `wellknown:https://${HOST}/${SEGMENT}`], ['registry', `registry:${SEGMENT}/${PLACE}`], ['inline', 'inline:[^/\\s\\\\]+'],
    ['vault', `vault:(?:https://${HOST}|http://(?:localhost|127\\.0\\.0\\.1|\\[::1\\])(?::(?:${PORT}))?)(?:/${PLACE})?/v/[a-z0-9]+(?:-[a-z0-9]+)*/`
        + `(?!(?:${[...DEVICE_NAMES].map((name) => name.replace('$', '\\$')).join('|')})$)[a-z0-9]+(?:-[a-z0-9]+)*`],
].map(([kind, form]) => [kind, new RegExp(`^(?:${form})$`)]);

export function provenanceKind(identifier) {
    const bad = encode(identifier).length > 2048 || HIDDEN.test(identifier) || /\s/.test(identifier.replaceAll(' ', ''));
    return bad ? undefined : PROVENANCE.find(([, form]) => form.test(identifier))?.[0];
}

/** P1 to P8. */
function checkPath(path, word) {
    const segments = path.split('/');
    const short = segments.length <= 16 && segments.every((one) => encode(one).length <= 100);
    need(path && encode(path).length <= 255 && short, word);
    need(!UNPRINTABLE.test(path) && !/[\\:*?"<>|]/.test(path) && path.normalize('NFC') === path, word);
    need(segments.every((one) => !['', '.', '..'].includes(one) && !/[. ]$/.test(one)), word);
    need(segments.every((one) => !DEVICE_NAMES.has(one.split('.')[0].replace(/ +$/, '').toLowerCase())), word);
    need(segments.every((one) => !['.git', 'git~1'].includes(one.toLowerCase())) && !path.toLowerCase().startsWith('.vault'), word);
}

const foldersOf = (paths) => new Set(paths.flatMap((path) => path.split('/').slice(1).map((_, place, all) => path.split('/').slice(0, place + 1).join('/'))));

/** Full case folding, letter by letter: ı folds to nothing else. */
const fold = (path) => Array.from(path.normalize('NFC'), (one) => (one === 'ı' ? one : one.toLowerCase().toUpperCase().toLowerCase())).join('').normalize('NFC');

/** P9. */
function checkPaths(paths, word) {
    const [folders, folded] = [foldersOf(paths), new Map()];
    for (const one of new Set([...paths, ...folders])) {
        need((folded.get(fold(one)) ?? one) === one, word);
        folded.set(fold(one), one);
    }
    need(!paths.some((path) => folders.has(path)), word);
}

/** M3 beyond types. */
function checkManifest(manifest) {
    const { files, provenance: { identifier, kind, revision } } = manifest;
    need(NAME.test(manifest.name) && !DEVICE_NAMES.has(manifest.name) && !HIDDEN.test(manifest.frontmatter_name ?? ''), 'manifest_name');
    need(manifest.version >= 1, 'manifest_version');
    const paths = files.map((one) => one.path);
    for (const path of paths) checkPath(path, 'manifest_path');
    need(files.length >= 1 && files.length <= 1024 && paths.includes('SKILL.md') && increasing(paths), 'manifest_files');
    checkPaths(paths, 'manifest_path');
    need(files.every((one) => ['0644', '0755'].includes(one.mode)), 'manifest_mode');
    need(files.every((one) => one.size <= (one.path === 'SKILL.md' ? MIB / 4 : 4 * MIB)), 'manifest_size');
    need(files.reduce((sum, one) => sum + one.size, 0) <= 16 * MIB, 'manifest_size');
    const folders = new Set(['.', ...foldersOf(paths)]);
    for (const [name, action] of manifest.actions) {
        need(ACTION.test(name) && (paths.includes(action.command) || /^(?![.-])[A-Za-z0-9._+-]{1,100}$/.test(action.command)), 'manifest_actions');
        need(action.args.length <= 64 && !action.args.some((one) => one.includes('\0')) && folders.has(action.cwd), 'manifest_actions');
        need(!HIDDEN.test(action.description ?? ''), 'manifest_actions');
    }
    need(provenanceKind(identifier) === kind, 'manifest_provenance');
    const fits = kind === 'code-host' ? /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(revision) : revision && encode(revision).length <= 255 && !HIDDEN.test(revision);
    need(revision === null || fits, 'manifest_provenance');
}

/** M5: undefined if a signer of this standing counts in an archive. */
function signerWord(here, listed, threshold) {
    if (here === 'release') return listed || threshold === 1 ? undefined : 'release_awaited';
    if (here === 'retired') return listed ? undefined : 'signer_retired';
    return 'manifest_signature';
}

/** M1 to M5 in an archive. `isListed` says of a bundle with this manifest whether a catalog that counts lists it. Returns signer and manifest. */
export async function readManifest(envelope, { chain, elsewhere }, isListed) {
    need(envelope.entries.length === 1 && envelope.kind === 'application/vnd.vault.skill-manifest.v2+json', 'manifest_schema');
    const [signer] = await signedBy(envelope, named(chain.map((one) => one.doc)));
    need(signer, 'manifest_signature'); // M2
    const manifest = await parse(envelope.payload, MANIFEST, 'manifest_schema');
    checkManifest(manifest);
    need(manifest.vault_id === vaultId(chain), 'manifest_vault_id');
    const word = signerWord(standing(signer, chain, elsewhere), await isListed(manifest), chain.at(-1).doc.release.threshold);
    need(!word, word);
    return { signer, manifest };
}

// --- bundles and catalogs, as far as an archive needs them -----------------------------------------

/** The content of a file in a bundle, by rule 1. */
function contentOf(bytes) {
    if (!bytes.includes(0)) {
        try {
            return ['utf-8', new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)];
        } catch { /* not UTF-8 */ }
    }
    return ['base64', toBase64(bytes)];
}

async function partsOf(bytes) {
    const parts = [];
    for (let at = 0; at < bytes.length; at += 3_000_000) {
        const object = encode(JSON.stringify({ schema: 'vault.part/1', content: toBase64(bytes.subarray(at, at + 3_000_000)) }));
        parts.push({ bundle_hash: await sha256(object), size: object.length });
    }
    return parts;
}

/** Rules 2 and 3: the hash of the bundle with this envelope of the manifest and these files, in the manifest's order. */
export async function bundleHash(envelopeText, files) {
    const stored = files.map(({ path, bytes }) => {
        const [encoding, content] = contentOf(bytes);
        return { path, encoding, content };
    });
    const sizes = stored.map((one) => encode(JSON.stringify(one.content)).length - 2);
    for (;;) {
        const whole = encode(`{"schema":"vault.bundle/1","manifest":${envelopeText},"files":${JSON.stringify(stored)}}`);
        const inline = stored.flatMap((one, place) => (one.encoding === 'parts' ? [] : [place]));
        let chosen = inline.find((place) => sizes[place] > MIB);
        if (chosen === undefined && whole.length <= 4 * MIB) return sha256(whole);
        if (chosen === undefined) chosen = inline.reduce((best, place) => (sizes[place] >= sizes[best] ? place : best));
        stored[chosen] = { path: files[chosen].path, encoding: 'parts', parts: await partsOf(files[chosen].bytes) };
    }
}

const OBJECT = { bundle_hash: HASH, path: text, size: integer };
const CATALOG_FILE = record({ public_key: key, roots: plainList, ...ENVELOPE });
const CATALOG = record({ schema: constant('vault.catalog/2'), vault_id: VAULT_ID, slug: SLUG, audience: many(text), release: integer, issued_at: TIME,
    expires_at: TIME, public_key: key, root_version: integer, root_sha256: HASH, previous: maybe(record({ release: integer, payload_sha256: HASH })),
    skills: many(record({ name: skillName, version: integer, ...OBJECT })), index: many(record(OBJECT)), policy: maybe(record({ sha256: HASH, size: integer })),
    profiles: many(record({ name: shownText, agent: AGENT, ...OBJECT })),
    withdrawn: many(record({ name: skillName, bundle_hash: HASH, reason: text, since_release: integer })) });

/** C7 beyond types. */
function catalogShape(catalog) {
    const { skills, index, profiles, withdrawn, policy } = catalog;
    need(withdrawn.length <= 1000, 'catalog_withdrawn');
    const [objects, gone] = [[...skills, ...index, ...profiles], new Set(withdrawn.map((one) => one.bundle_hash))];
    need(catalog.release >= 1 && skills.every((one) => one.version >= 1) && increasing(skills.map((one) => one.name)));
    need(objects.every((one) => one.path === `bundles/${one.bundle_hash}.json` && one.size <= 4 * MIB) && (policy?.size ?? 0) <= 4 * MIB);
    need(profiles.every((one) => one.name) && new Set(profiles.map((one) => one.name)).size === profiles.length);
    need(gone.size === withdrawn.length && !skills.some((one) => gone.has(one.bundle_hash)) && !withdrawn.some((one) => one.reason.includes('\0')));
    return catalog;
}

/** The catalog that an archive carries, if it counts there (docs/formats.md, "Archives and sites"). */
export async function readCarriedCatalog(bytes, { chain, elsewhere }) {
    need(bytes.length <= 4 * MIB, 'catalog_schema');
    const file = await parse(bytes, CATALOG_FILE, 'catalog_schema', false);
    const envelope = await refusing('catalog_schema', () => readEnvelope(file));
    need(envelope.kind === 'application/vnd.vault.catalog.v2+json', 'catalog_schema');
    const role = chain.at(-1).doc.release;
    const counted = await signedBy(envelope, role.keys.filter((one) => !elsewhere.has(one)));
    need(counted.size >= role.threshold, 'signatures_missing');
    const catalog = await parse(envelope.payload, (value) => catalogShape(CATALOG(value)), 'catalog_schema');
    need(catalog.vault_id === vaultId(chain), 'catalog_vault_id');
    need(chain.some((one) => hex(one.digest) === catalog.root_sha256), 'root_invalid');
    return catalog;
}

// --- archives -------------------------------------------------------------------------------------

/** Unpacks gzip, to at most 32 MiB: a skill of full size and its headers are smaller. */
async function gunzip(bytes) {
    const parts = [];
    let size = 0;
    try {
        for await (const part of new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))) {
            size += part.length;
            need(size <= 32 * MIB, 'archive');
            parts.push(part);
        }
    } catch (fault) {
        throw fault instanceof Refused ? fault : new Refused('archive');
    }
    return join(parts);
}

/** The files of a tar archive. Refuses everything but files, and long names as GNU tar writes them. */
export async function unpack(bytes) {
    const [whole, files] = [await gunzip(bytes), []];
    const field = (head, from, to) => new TextDecoder('utf-8', { fatal: true }).decode(head.subarray(from, to)).replace(/\0.*$/s, '');
    let [at, long] = [0, undefined];
    while (at + 512 <= whole.length && whole.subarray(at, at + 512).some((byte) => byte !== 0)) {
        const head = whole.subarray(at, at + 512);
        const sum = head.reduce((total, byte, place) => total + (place >= 148 && place < 156 ? 32 : byte), 0);
        const size = parseInt(field(head, 124, 136), 8);
        need(sum === parseInt(field(head, 148, 156), 8) && size >= 0 && at + 512 + size <= whole.length, 'archive');
        const content = whole.subarray(at + 512, at + 512 + size);
        const kind = String.fromCharCode(head[156]);
        if (kind === 'L') {
            long = field(content, 0, size);
        } else {
            need(kind === '0' || kind === '\0', 'archive');
            files.push({ path: long ?? field(head, 0, 100), mode: parseInt(field(head, 100, 108), 8) & 0o111 ? '0755' : '0644', bytes: content });
            long = undefined;
        }
        at += 512 + 512 * Math.ceil(size / 512);
    }
    need(whole.length - at >= 1024 && whole.subarray(at).every((byte) => byte === 0), 'archive');
    return files;
}

// --- sites ----------------------------------------------------------------------------------------

const SITE = record({ $schema: constant(SCHEMA), skills: many(record({ name: skillName, type: text, url: text, digest: text })) });
const EXPORTED = record({ roots: optional(plainList), catalog: optional(text), ...ENVELOPE });

/** M1 to M6 and the bytes of the files. `reader` has a chain, the keys revoked elsewhere and the names of its bundles that a catalog lists. */
export async function verifyFiles(envelope, files, name, reader, listed) {
    let bundle;
    const { signer, manifest } = await readManifest(envelope, reader, async ({ files: signed }) => {
        const found = new Map(files.map((one) => [one.path, one]));
        need(found.size === files.length && files.length === signed.length, 'files');
        for (const { path, size, sha256: wanted, mode } of signed) {
            const one = found.get(path);
            need(one && one.bytes.length === size && await sha256(one.bytes) === wanted && one.mode === mode, 'files');
        }
        bundle = await bundleHash(envelope.text, signed.map(({ path }) => found.get(path)));
        return listed.has(bundle);
    });
    need(manifest.name === name, 'manifest_name');
    return { signer, manifest, bundle };
}

/** Verifies one entry of the index. `get(path, most)` reads a file beside the index, of so many bytes at most. */
async function verifyEntry(get, entry, expected) {
    checkPath(entry.url, 'index');
    const artifact = await get(entry.url, 18 * MIB);
    need(entry.digest === `sha256:${await sha256(artifact)}`, 'digest');
    need(['skill-md', 'archive'].includes(entry.type), 'index');
    const files = entry.type === 'archive' ? await unpack(artifact) : [{ path: 'SKILL.md', mode: '0644', bytes: artifact }];
    const exported = await parse(await get(`${entry.name}.manifest.json`, 4 * MIB), EXPORTED, 'manifest_schema', false);
    const envelope = await refusing('manifest_schema', () => readEnvelope(exported));
    const reader = await chooseChain([], await readChain(exported.roots ?? []), new Set(), expected);
    let listed = new Set();
    if (exported.catalog !== undefined && !exported.catalog.includes('/')) {
        checkPath(exported.catalog, 'index');
        // A catalog that does not count lists nothing.
        const catalog = await readCarriedCatalog(await get(exported.catalog, 4 * MIB), reader).catch(() => undefined);
        listed = new Set(catalog?.skills.map((skill) => skill.bundle_hash));
    }
    const { signer, manifest, bundle } = await verifyFiles(envelope, files, entry.name, reader, listed);
    const { name } = reader.chain.flatMap((one) => one.doc.keys).find((one) => one.public_key === signer);
    return { version: manifest.version, signer: await keyFingerprint(signer), signerName: name, bundle, files: manifest.files, warnings: reader.warnings,
        vault: vaultFingerprint(reader.chain) };
}

/**
 * Verifies all skills of a site. Without an expected fingerprint it shows only that each skill fits the keys that lie beside it: a stranger's site
 * does so, too.
 */
export async function verifySite(get, expected) {
    const index = await parse(await get('index.json', 16 * MIB), SITE, 'index', false);
    const skills = [];
    for (const entry of index.skills) {
        try {
            skills.push({ name: entry.name, ...await verifyEntry(get, entry, expected) });
        } catch (fault) {
            skills.push({ name: entry.name, word: fault.word ?? `${fault}` });
        }
    }
    const word = skills.find((one) => one.word)?.word ?? (skills.length ? undefined : 'index');
    return { skills, word: word ?? (expected ? undefined : 'expect_key_needed') };
}

// --- the page, and the command line ---------------------------------------------------------------

async function bounded(stream, most) {
    const parts = [];
    let size = 0;
    for (const reader = stream.getReader(); ;) {
        const { done, value } = await reader.read();
        if (done) return join(parts);
        size += value.length;
        need(size <= most, 'too_large');
        parts.push(value);
    }
}

/** Reads files of the site at this address of its index. */
const fromAddress = (index) => async (path, most) => {
    const address = new URL(path.split('/').map(encodeURIComponent).join('/'), index);
    const answer = await fetch(address, { redirect: 'error', cache: 'no-store', credentials: 'omit' }).catch(() => undefined);
    need(answer?.ok, 'missing');
    return bounded(answer.body, most);
};

const REASONS = {
    archive: 'the archive cannot be read', digest: 'the file is not the one that the index names', expect_key_needed: 'no fingerprint was given',
    files: 'the files are not those that were signed', index: 'the index cannot be used', manifest_signature: 'no key of the vault signed it',
    missing: 'a file is missing', release_awaited: 'more publishers have to sign a release first', signer_retired: 'its publisher has left',
    too_large: 'a file is too large', vault_changed: 'the keys are those of another vault',
};
const reason = (word) => (REASONS[word] ? `${REASONS[word]} (${word})` : word);

/** What became of a site, as lines of text. */
function report({ skills, word }, expected) {
    const lines = skills.map((one) => (one.word ? `✗ ${one.name}: ${reason(one.word)}`
        : `${expected ? '✓' : '?'} ${one.name} version ${one.version}, signed by ${one.signerName} (${one.signer})`));
    const vaults = [...new Set(skills.flatMap((one) => one.vault ?? []))];
    const warnings = [...new Set(skills.flatMap((one) => one.warnings ?? []))];
    const ends = word === undefined ? `Verified: exactly as the vault ${expected} signed it.`
        : word === 'expect_key_needed' ? `Not verified yet: ask the owner for the fingerprint of the vault, and compare it with ${vaults.join(', ')}`
            : `Refused: ${reason(word)}. Do not use these skills.`;
    return [ends, ...lines, ...warnings.map((one) => `warning: ${one}`)];
}

const unable = async () => !globalThis.crypto?.subtle || await crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']).then(() => false, () => true);

async function showPage() {
    const [form, verdict, list] = ['form', '#verdict', '#skills'].map((one) => document.querySelector(one));
    const show = async () => {
        const expected = decodeURIComponent(location.hash.slice(1)) || undefined;
        form.elements.fingerprint.value = expected ?? '';
        verdict.textContent = 'Checking …';
        document.body.dataset.state = 'checking';
        list.replaceChildren();
        if (await unable()) {
            verdict.textContent = 'This browser cannot check Ed25519 signatures here. Use https and a newer browser, or node reader.mjs.';
            document.body.dataset.state = 'refused';
            return;
        }
        const found = await verifySite(fromAddress(location.href), expected).catch((fault) => ({ skills: [], word: fault.word ?? `${fault}` }));
        const [first, ...rest] = report(found, expected);
        verdict.textContent = first;
        list.replaceChildren(...rest.map((line, place) => {
            const item = document.createElement('li');
            item.append(line);
            for (const { path, size, sha256: digest } of found.skills[place]?.files ?? []) {
                const file = document.createElement('code');
                file.textContent = `${digest}  ${path}  ${size} B`;
                item.append(file);
            }
            return item;
        }));
        document.body.dataset.state = { undefined: 'verified', expect_key_needed: 'unknown' }[found.word] ?? 'refused';
    };
    form.addEventListener('submit', (event) => {
        event.preventDefault();
        location.hash = form.elements.fingerprint.value.trim();
    });
    addEventListener('hashchange', show);
    await show();
}

async function runCommand([place, flagged, expected, ...rest]) {
    if (!place || place.startsWith('-') || rest.length || (flagged !== undefined && (flagged !== '--expect-key' || !expected))) {
        console.error('usage: node reader.mjs FOLDER-OR-ADDRESS [--expect-key FINGERPRINT]');
        return 2;
    }
    const { open } = await import('node:fs/promises');
    const { constants } = await import('node:fs');
    const fromFolder = async (path, most) => {
        const file = await open(`${place}/${INDEX.replace('index.json', path)}`, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => undefined);
        need(file, 'missing');
        try {
            const about = await file.stat();
            need(about.isFile() && about.size <= most, 'too_large');
            return new Uint8Array(await file.readFile());
        } finally {
            await file.close();
        }
    };
    const get = /^https?:/.test(place) ? fromAddress(new URL(INDEX, `${place.replace(/\/$/, '')}/`)) : fromFolder;
    const found = await verifySite(get, expected).catch((fault) => ({ skills: [], word: fault.word ?? `${fault}` }));
    for (const line of report(found, expected)) console.log(line);
    return { undefined: 0, expect_key_needed: 2, release_awaited: 3, signer_retired: 3, newer_vault: 1 }[found.word] ?? 6;
}

if (typeof document !== 'undefined') {
    await showPage();
} else if (process.argv[1] && import.meta.url === (await import('node:url')).pathToFileURL((await import('node:fs')).realpathSync(process.argv[1])).href) {
    process.exitCode = await runCommand(process.argv.slice(2));
}

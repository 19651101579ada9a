// Runs the vectors that concern an archive through the reader of exported sites, and counts them: `node reader_vectors.mjs [--first]`. Cases of
// what that reader does not do (catalogs that a device judges, bundles, policies, drafts) are left out, by kind, and counted.
import { readFileSync, readdirSync } from 'node:fs';

import * as reader from '../../shared/library/src/export/reader.mjs';

const folder = new URL('../vectors/', import.meta.url);
const read = (name) => JSON.parse(readFileSync(new URL(name, folder), 'utf8'));
const bytesOf = (text) => new TextEncoder().encode(text);
const [names, releases] = [{ ...read('formats/roots.json'), ...read('roots/roots.json') }, read('roots/releases.json')];
const formatNames = read('formats/roots.json');
const counts = new Map();
const leftOut = new Map();
let failed = 0;
const count = (into, name) => into.set(name, (into.get(name) ?? 0) + 1);

function check(file, name, got, wanted) {
    count(counts, file);
    if (JSON.stringify(got) === JSON.stringify(wanted)) return;
    failed += 1;
    console.log(`${file} ${name}: ${JSON.stringify(got)} instead of ${JSON.stringify(wanted)}`);
    if (process.argv.includes('--first')) process.exit(1);
}

const outcome = (work) => Promise.resolve().then(work).catch((fault) => (fault instanceof reader.Refused ? fault.word ?? null : `${fault.stack}`));

/** A value as the reader parses it. */
const parsed = (value) => reader.parse(bytesOf(JSON.stringify({ value })), (whole) => whole[0][1], 'case', false);

async function rootsOf(given) {
    if (Array.isArray(given)) return given.map((name) => names[name]);
    const { createPrivateKey, sign } = await import('node:crypto');
    const { seed_hex: seed, keyid } = read('roots/keys.json')[given.signer];
    const secret = createPrivateKey({ key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), Buffer.from(seed, 'hex')]), format: 'der', type: 'pkcs8' });
    const made = [names[given.from]];
    const first = Buffer.from(made[0].payload, 'base64');
    const vault = reader.vaultId([{ digest: await digestOf(first) }]);
    let before = first;
    for (let version = 2; version <= given.versions; version += 1) {
        const doc = { ...JSON.parse(first), version, vault_id: vault, previous_sha256: await reader.sha256(before) };
        before = Buffer.from(JSON.stringify({ ...doc, ...(given.pad ? { pad: 'x'.repeat(given.pad) } : {}) }));
        const kind = made[0].payloadType;
        const sig = sign(null, Buffer.concat([Buffer.from(`DSSEv1 ${kind.length} ${kind} ${before.length} `), before]), secret).toString('base64');
        made.push({ payloadType: kind, payload: before.toString('base64'), signatures: [{ keyid, sig }], ...(given.unknown ? { x: 'x'.repeat(given.unknown) } : {}) });
    }
    check('made by rule', given.from, await reader.sha256(bytesOf(JSON.stringify(made))), given.sha256);
    return made;
}

const digestOf = async (bytes) => new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
const chainOf = async (roots) => (roots ? reader.readChain(await parsed(await rootsOf(roots))) : []);

/** The catalog that a state names as stored, if it counts for this reader. */
async function listedBy(state) {
    if (!state.stored) return new Set();
    const payload = JSON.parse(Buffer.from(releases[state.stored.release].payload, 'base64'));
    return new Set(payload.skills.map((skill) => skill.bundle_hash));
}

async function judge(state, step) {
    const own = state.chain;
    if (step.do === 'archive') reader.need(own.length || state.expect_key, 'expect_key_needed');
    const shown = await reader.readChain(await parsed(await rootsOf(step.input.roots)), own);
    const chosen = await reader.chooseChain(own, shown, state.elsewhere, state.expect_key ?? undefined);
    if (own.length || state.expect_key || step.do === 'chain') Object.assign(state, chosen);
    state.warnings = chosen.warnings;
    if (step.do === 'archive') {
        const bundle = read(`roots/${bundles.get(step.input.bundle)}`);
        const files = bundle.files.map((one) => ({ path: one.path, bytes: one.encoding === 'utf-8' ? bytesOf(one.content) : Buffer.from(one.content, 'base64') }));
        const envelope = reader.readEnvelope(reader.readRecord(reader.ENVELOPE)(await parsed(bundle.manifest)));
        const { files: signed, name } = JSON.parse(new TextDecoder().decode(envelope.payload));
        const moded = files.map((one) => ({ ...one, mode: signed.find((each) => each.path === one.path).mode }));
        const { bundle: hash } = await reader.verifyFiles(envelope, moded, name, state, state.listed);
        reader.need(hash === step.input.bundle, 'another bundle');
    }
    return 'ok';
}

const bundles = new Map(readdirSync(new URL('roots/', folder)).filter((name) => name.startsWith('bundle-')).map((name) => [name.slice(7, -5), name]));
const exits = { ok: 0, newer_vault: 1, expect_key_needed: 2, release_awaited: 3, signer_retired: 3 };

async function runRoots() {
    for (const file of ['roots/accept.json', 'roots/negative.json']) {
        const cases = read(file);
        for (const one of cases.cases) {
            if (!['chain', 'archive'].includes(one.do)) {
                count(leftOut, `${file} ${one.do}`);
                continue;
            }
            const given = { ...cases.state, ...one.state };
            const state = { ...given, chain: await chainOf(given.roots), elsewhere: new Set(given.revoked), warnings: [], listed: await listedBy(given) };
            const before = state.chain;
            const word = await outcome(() => judge(state, one));
            check(file, one.id, [word, exits[word] ?? 6, state.warnings], [one.result, one.exit, one.warnings ?? []]);
            const wanted = one.after?.roots ? await Promise.all(one.after.roots.map((name) => reader.sha256(Buffer.from(names[name].payload, 'base64')))) : undefined;
            const now = state.chain.map((each) => Buffer.from(each.digest).toString('hex'));
            if (wanted) check(file, `${one.id} roots`, now, wanted);
            else if (one.after?.root_count) check(file, `${one.id} roots`, now.length, one.after.root_count);
            else check(file, `${one.id} roots`, state.chain === before || now.length, before.length === 0 && word === 'ok' ? now.length : true);
        }
    }
    for (const [name, one] of Object.entries(read('roots/chains.json').chains)) {
        const chain = await reader.readChain(await parsed(read(`roots/${one.file}`)));
        check('roots/chains.json', name, [reader.vaultId(chain), reader.vaultFingerprint(chain)], [one.vault_id, one.fingerprint]);
    }
    const { accept, refuse } = read('roots/names.json');
    for (const name of [...accept, ...refuse]) {
        check('roots/names.json', name, await outcome(() => reader.keyName(name) && 'ok'), accept.includes(name) ? 'ok' : null);
    }
}

/** The roots of a catalog file as a lenient parser reads them; those of a good file where it cannot. */
function rootsIn(bytes) {
    try {
        const { roots } = JSON.parse(Buffer.from(bytes).toString('utf8').replace(/^\ufeff/, ''));
        if (Array.isArray(roots)) return roots;
    } catch { /* the reader is to refuse it */ }
    return read('formats/catalog-42.json').roots;
}

async function runFormats() {
    for (const file of ['formats/accept.json', 'formats/negative.json']) {
        const cases = read(file);
        for (const one of cases.cases) {
            // The state of a device decides about the other errors of a catalog.
            const shape = one.kind === 'catalog' && [undefined, 'catalog_schema', 'catalog_withdrawn', 'root_invalid'].includes(one.error);
            if (one.kind !== 'manifest' && !shape) {
                count(leftOut, `${file} ${one.kind}`);
                continue;
            }
            const context = { ...cases.context, ...cases.contexts?.[one.kind], ...one.context };
            const bytes = one.bytes_base64 ? Buffer.from(one.bytes_base64, 'base64') : one.bytes === undefined ? readFileSync(new URL(`formats/${one.file}`, folder)) : bytesOf(one.bytes);
            const word = await outcome(async () => {
                if (one.kind === 'catalog') {
                    const chain = await reader.readChain(await parsed(rootsIn(bytes)));
                    await reader.readCarriedCatalog(bytes, { chain, elsewhere: new Set() });
                    return 'ok';
                }
                const value = await reader.parse(bytes, reader.readRecord(reader.ENVELOPE), 'manifest_schema', false);
                let envelope;
                try {
                    envelope = reader.readEnvelope(value);
                } catch {
                    throw new reader.Refused('manifest_schema');
                }
                const chain = await reader.readChain(await parsed(context.roots.map((name) => formatNames[name])));
                const { manifest } = await reader.readManifest(envelope, { chain, elsewhere: new Set() }, () => false);
                reader.need(manifest.name === context.name, 'manifest_name');
                reader.need(manifest.version === context.version && manifest.version >= context.stored_version, 'manifest_version');
                return 'ok';
            });
            check(file, one.id ?? one.why, word, one.error ?? 'ok');
        }
    }
    for (const one of read('formats/provenance.json').cases) {
        check('formats/provenance.json', one.identifier, reader.provenanceKind(one.identifier) === one.kind, one.valid);
    }
    for (const one of read('formats/parts.json').cases) {
        const inline = Object.entries(one.inline ?? {}).map(([path, content]) => ({ path, bytes: bytesOf(content) }));
        const made = one.rules.map(({ path, rule, byte, size }) => {
            const bytes = new Uint8Array(size);
            if (rule === 'repeat') bytes.fill(byte.charCodeAt(0));
            else for (let at = 0; at < size; at += 4) new DataView(bytes.buffer).setUint32(at, at / 4);
            return { path, bytes };
        });
        const bundle = one.bundle ? read(`formats/${one.bundle}`) : undefined;
        const first = bundle ? [{ path: 'SKILL.md', bytes: bytesOf(bundle.files[0].content) }] : [];
        const { text } = reader.readEnvelope(one.manifest ?? bundle.manifest);
        check('formats/parts.json', one.why, await reader.bundleHash(text, [...first, ...inline, ...made]), one.bundle_hash);
    }
}

async function runKeys() {
    const cases = read('ed25519.json');
    const bytes = (text) => Uint8Array.from(Buffer.from(text, 'hex'));
    const textOf = (text) => Buffer.from(text, 'hex').toString('base64url');
    for (const one of [...cases.keys, ...cases.texts]) {
        const value = one.text ?? textOf(one.bytes);
        check('ed25519.json', one.why ?? value, await outcome(() => reader.key(value)) === value, one.good);
    }
    for (const one of cases.signatures) {
        check('ed25519.json', one.why, await outcome(() => reader.verifies(textOf(one.key), bytes(one.signature), bytes(one.message))), one.good);
    }
}

await runKeys();
await runRoots();
await runFormats();
const sum = (of) => [...of.values()].reduce((total, one) => total + one, 0);
console.log(`left out: ${[...leftOut].map(([name, number]) => `${number} ${name}`).join(', ')}`);
if (sum(counts) < 600) failed += 1;
console.log(`${sum(counts)} checks of ${counts.size} files, ${sum(leftOut)} cases left out; ${failed} failed`);
process.exit(failed ? 1 : 0);

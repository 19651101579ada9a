// What the walks of both npm clients share: the client's storage, one line a step, a skill verified.
import { createHash, createPublicKey, randomBytes, verify } from 'node:crypto';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

import * as person from './person.mjs';

/** Loads a module of the clients, which are installed outside the checkout. */
export const load = createRequire(`${process.env.CLIENTS_MODULES}/here.js`);

export const settings = {
    url: new URL(`${process.env.VAULT_REMOTE_URL.replace(/\/$/, '')}/mcp`),
    email: process.env.VAULT_ADMIN_EMAIL,
    password: process.env.VAULT_ADMIN_PASSWORD,
    // Whether a skill may really be published: a service that is not ours is only asked.
    publish: process.env.CLIENTS_PUBLISH === 'yes',
};

/** Where the client asks to be sent back to; nothing listens there, the walk reads the address. */
const CALLBACK = 'http://127.0.0.1:33418/callback';

export class Walk {
    constructor(title) {
        this.title = title;
        this.begun = Date.now();
    }

    /** Runs a step and prints its line; the walk ends at the first that fails. */
    async step(name, work) {
        const begun = Date.now();
        const line = (state, note) => console.log(`${state.padEnd(7)} ${this.title.padEnd(18)} ${name.padEnd(22)} ${String(Date.now() - begun).padStart(6)} ms  ${note ?? ''}`.trimEnd());
        try {
            const done = await work();
            line('ok', done?.note ?? (typeof done === 'string' ? done : ''));
            return done;
        } catch (error) {
            line('failed', '');
            const cause = error.cause ? `: ${error.cause}` : '';
            console.log(`        ${error.name}: ${error.message}${cause}`.slice(0, 1200));
            process.exit(1);
        }
    }
}

export function expect(good, words) {
    if (!good) throw new Error(`expected ${words}`);
}

/** What a client keeps, in memory. */
export class Provider {
    constructor(title) {
        this.title = title;
        this.kept = {};
    }
    get redirectUrl() { return CALLBACK; }
    get clientMetadata() {
        return {
            client_name: this.title,
            redirect_uris: [CALLBACK],
            grant_types: ['authorization_code', 'refresh_token'],
            response_types: ['code'],
            token_endpoint_auth_method: 'none',
            application_type: 'native',
        };
    }
    state() { return (this.kept.state = randomBytes(16).toString('base64url')); }
    clientInformation() { return this.kept.client; }
    saveClientInformation(client) { this.kept.client = client; }
    tokens() { return this.kept.tokens; }
    saveTokens(tokens) { this.kept.tokens = tokens; }
    codeVerifier() { return this.kept.verifier; }
    saveCodeVerifier(verifier) { this.kept.verifier = verifier; }
    discoveryState() { return this.kept.discovery; }
    saveDiscoveryState(state) { this.kept.discovery = state; }
    redirectToAuthorization(url) { this.asked = url; }
    /** The address that the client would open a browser at, once. */
    takeAsked() {
        const asked = this.asked;
        this.asked = undefined;
        return asked;
    }
}

/** Whether an authorize address has what the service needs; says what it asks for. */
export function looksRight(asked) {
    expect(asked, 'the client to open the authorize page');
    const query = asked.searchParams;
    expect(query.get('code_challenge_method') === 'S256' && query.get('code_challenge')?.length === 43, 'PKCE with S256');
    expect(query.get('resource') === settings.url.href, `resource=${settings.url.href}, not ${query.get('resource')}`);
    return `PKCE S256, scope ${query.get('scope')}`;
}

/** The person of these walks allows these scopes. */
export const consent = (asked, scopes) => person.consent(asked, scopes, settings.email, settings.password);

/** Verifies what skill_fetch answered: the Ed25519 signature over the manifest, and the digest of every file that came with it. */
export function verified(answer) {
    const envelope = answer.manifest;
    const payload = Buffer.from(envelope.payload, 'base64');
    const message = Buffer.concat([Buffer.from(`DSSEv1 ${envelope.payloadType.length} ${envelope.payloadType} ${payload.length} `), payload]);
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x: answer.public_key }, format: 'jwk' });
    expect(verify(null, message, key, Buffer.from(answer.signature, 'base64')), 'a good Ed25519 signature');
    const manifest = JSON.parse(payload);
    for (const entry of manifest.files) {
        const file = answer.files.find((file) => file.path === entry.path);
        expect(file, `the file ${entry.path}`);
        const content = entry.path === 'SKILL.md' ? answer.skill_md : file.content;
        if (content === undefined) continue;
        const bytes = Buffer.from(content, file.encoding === 'base64' ? 'base64' : 'utf8');
        expect(createHash('sha256').update(bytes).digest('hex') === entry.sha256, `${entry.path} as it was signed`);
    }
    return `${answer.id} version ${manifest.version}, ${manifest.files.length} files, signature good`;
}

/** The structured result of a tool; throws what the tool says is wrong. */
export async function call(client, name, args) {
    const result = await client.callTool({ name, arguments: args });
    if (result.isError) throw new Error(`${name}: ${result.content?.[0]?.text}`);
    expect(result.structuredContent, `a structured result of ${name}`);
    return result.structuredContent;
}

/** The one write: a skill of this client's own name. */
export async function write(client, title) {
    const name = `from-${title.replaceAll(/[^a-z0-9]+/g, '-')}`;
    const skill_md = `---\nname: ${name}\ndescription: Written by a client in a test, to see a write through.\n---\nNothing to do.\n`;
    if (settings.publish) {
        const answer = await call(client, 'skill_publish', { skill_md });
        return `skill_publish: ${answer.status ?? JSON.stringify(answer).slice(0, 80)}`;
    }
    const answer = await call(client, 'propose_skill', { skill_md, check: true });
    return `propose_skill, check only: ${answer.status ?? ''}`;
}

/** Reads that every client makes with a token for reading. */
export async function reads(walk, client) {
    await walk.step('tools/list', async () => {
        const { tools } = await client.listTools();
        const names = tools.map((tool) => tool.name);
        for (const name of ['get_skill', 'skill_list', 'skill_fetch', 'skill_publish']) expect(names.includes(name), `the tool ${name}`);
        expect(names.every((name) => /^[a-zA-Z0-9_-]{1,64}$/.test(name)), 'names that every product takes');
        expect(tools.every((tool) => tool.outputSchema && tool.annotations?.title), 'output schemas and titles');
        return `${tools.length} tools`;
    });
    const { first } = await walk.step('skill.list', async () => {
        const { skills } = await call(client, 'skill.list', {});
        return { note: `${skills.length} skills`, first: skills[0] };
    });
    if (!first) {
        console.log('        the vault is empty: get_skill and skill_fetch have nothing to show');
        return;
    }
    await walk.step('get_skill', async () => {
        await call(client, 'get_skill', { query: first.description.slice(0, 60) });
        const byName = await call(client, 'get_skill', { name: first.name, include_resources: true });
        expect(JSON.stringify(byName).includes(first.name), 'the skill of that name');
        return `by query, then ${first.name} by name`;
    });
    await walk.step('skill_fetch', async () => verified(await call(client, 'skill_fetch', { id: first.id })));
    await walk.step('resources', async () => {
        const { contents } = await client.readResource({ uri: first.uri });
        expect(contents[0]?.text?.startsWith('---'), 'SKILL.md as text');
        return first.uri;
    });
}

/** Ends the process if a walk hangs. */
sleep(300_000, undefined, { ref: false }).then(() => {
    console.log('failed  not done in time');
    process.exit(1);
});

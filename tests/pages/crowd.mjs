// A vault of full size, for tests/pages/run --full: people, machines and drafts by the hundred, made as
// people, machines and apps make them. Names and texts of some are hostile.
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';

import { consent } from '../clients/person.mjs';
import { expect } from './client.mjs';

/** Where an app asks to be sent back to; nothing listens there, the address is read. */
const CALLBACK = 'http://127.0.0.1:33419/callback';
/** The password of each person. */
export const PASSWORD = 'seven quiet herons at dawn';

/** Texts that a page must show as they are. */
export const HOSTILE = [
    '"><script>window.ran=1</script>', '<img src=x onerror=window.ran=1>', "';window.ran=1;//", '{{7*7}}${7*7}',
    'W'.repeat(64), '…'.repeat(64), 'מחשב של דנה 👩', 'حاسوب ليلى', '👩‍👩‍👧‍👦'.replaceAll('\u200d', '').repeat(16),
    '</td></table></main>', '&lt;b&gt;&amp;', 'a'.repeat(32) + '-' + 'b'.repeat(31), 'ﷺ'.repeat(21), '𝕬𝖉𝖆', 'ด้้้้้็็็็็้้้้้',
    'javascript:window.ran=1', '%3Cscript%3E', '-- DROP TABLE', '0', 'ＦＵＬＬ　ＷＩＤＴＨ',
];

async function answer(response, status) {
    const text = await response.text();
    const given = `${response.status} of ${response.url}: ${text.slice(0, 600)}`;
    expect(response.status === status, `${status}, not ${given}`);
    return JSON.parse(text);
}

/** Sends JSON with a token. */
export async function send(url, method, value, token, status) {
    const headers = { 'content-type': 'application/json' };
    if (token) headers.authorization = `Bearer ${token}`;
    const body = value === undefined ? undefined : JSON.stringify(value);
    return answer(await fetch(url, { method, headers, body }), status);
}

/** Works through the items, `width` of them at a time. */
export async function each(items, width, work) {
    const waiting = [...items].entries();
    const hand = async () => {
        for (const [at, item] of waiting) await work(item, at);
    };
    await Promise.all(Array.from({ length: width }, hand));
}

/** An app that this walk is: its tokens are given for a vault. */
export class App {
    static async register(vault, name) {
        const asked = { client_name: name, redirect_uris: [CALLBACK] };
        const { client_id } = await send(`${vault}/oauth/register`, 'POST', asked, undefined, 201);
        return Object.assign(new App(), { vault, client_id });
    }

    /** A token of a person for the vault `slug`, after sign-in and consent. */
    async token({ email, password }, slug, scopes = ['read', 'write']) {
        const verifier = randomBytes(32).toString('base64url');
        const asked = new URL(`${this.vault}/oauth/authorize`);
        asked.search = new URLSearchParams({
            response_type: 'code', client_id: this.client_id, redirect_uri: CALLBACK, scope: scopes.join(' '), state: 's',
            code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256',
            vault_namespace: slug,
        });
        const called = await consent(asked, scopes, email, password);
        const body = new URLSearchParams({
            grant_type: 'authorization_code', client_id: this.client_id, redirect_uri: CALLBACK,
            code: called.searchParams.get('code'), code_verifier: verifier,
        });
        const given = await answer(await fetch(`${this.vault}/oauth/token`, { method: 'POST', body }), 200);
        return given.access_token;
    }
}

/** Chooses the password of an account by the link of its invitation, as the page's form does. */
async function choosePassword(link, password) {
    const opened = await fetch(link);
    const cookie = opened.headers.getSetCookie().map((line) => line.split(';')[0]).join('; ');
    const page = await opened.text();
    const hidden = [...page.matchAll(/type="hidden" name="([^"]*)" value="([^"]*)"/g)];
    const body = new URLSearchParams(hidden.map(([, name, value]) => [name, value]));
    body.append('password', password);
    const headers = { origin: new URL(link).origin, cookie };
    const response = await fetch(link, { method: 'POST', headers, body, redirect: 'manual' });
    await response.arrayBuffer();
    expect(response.status < 400, `the password taken, not ${response.status}`);
}

/** Invites people, who accept; answers each with a token. `operator` is an operator's token. */
export async function people({ app, slug, token, operator, count }) {
    const { vault } = app;
    const emails = Array.from({ length: count }, (_, at) => {
        const long = at === 7 ? `${'w'.repeat(60)}` : `person-${String(at).padStart(3, '0')}`;
        return `${long}@example.com`;
    });
    const members = new Array(count);
    await each(emails, 4, async (email, at) => {
        const role = at % 25 === 1 ? 'role:publisher' : 'role:member';
        await send(`${vault}/admin/users`, 'POST', { email, role, scopes: ['read', 'write'] }, token, 201);
        const made = await send(`${vault}/admin/operator/accounts`, 'POST', { email }, operator, 201);
        await choosePassword(made.invite_url, PASSWORD);
        members[at] = { email, token: await app.token({ email, password: PASSWORD }, slug) };
    });
    // Those have an invitation that waits.
    await each(Array.from({ length: 10 }, (_, at) => `invited-${at}@example.com`), 4, (email) =>
        send(`${vault}/admin/users`, 'POST', { email, role: 'role:member', scopes: ['read'] }, token, 201));
    return members;
}

/** A machine with a key of its own. */
class Machine {
    constructor(vault, slug, name) {
        const { publicKey, privateKey } = generateKeyPairSync('ed25519');
        const key = publicKey.export({ format: 'jwk' }).x;
        Object.assign(this, { vault, slug, name, key, privateKey });
    }

    /** A signed request to `/v/SLUG/PATH`. */
    ask(method, path, body) {
        const address = new URL(`${this.vault}/v/${this.slug}/${path}`);
        const timestamp = String(Math.floor(Date.now() / 1000));
        const signed = Buffer.from(`${method}\n${address.pathname}\n${timestamp}`);
        const headers = {
            'x-vault-device': this.key, 'x-vault-timestamp': timestamp,
            'x-vault-signature': sign(null, signed, this.privateKey).toString('base64url'),
        };
        if (body) headers['content-type'] = 'application/json';
        return fetch(address, { method, headers, body: body && JSON.stringify(body) });
    }

    async enrol(code) {
        const asked = { public_key: this.key, hostname: this.name, ...(code ? { code } : {}) };
        this.id = (await answer(await this.ask('POST', 'devices', asked), 201)).device_id;
    }

    /** Fetches the current catalog, whose release the machine holds from then on. */
    async fetchCatalog() {
        const response = await this.ask('GET', 'catalog.json');
        await response.arrayBuffer();
        expect(response.status === 200, `a catalog, not ${response.status}`);
    }
}

/** Most machines that may wait in a vault. */
const WAITING = 20;

/**
 * Enrols machines: 20 that wait, some that have lost or never had access, and the others admitted by a
 * code. Answers them.
 */
export async function machines({ vault, slug, token, count }) {
    const admin = `${vault}/admin/vaults/${slug}`;
    const names = Array.from({ length: count }, (_, at) => HOSTILE[at % 50] ?? `machine-${String(at).padStart(4, '0')}`);
    const all = names.map((name) => new Machine(vault, slug, name));
    const denied = all.slice(0, WAITING);
    await each(denied, 4, (machine) => machine.enrol());
    await send(`${admin}/devices/deny-pending`, 'POST', {}, token, 200);
    const admitted = all.slice(2 * WAITING);
    // A person confirms a code for more machines than these.
    const uses = 20;
    for (let at = 0; at < admitted.length; at += uses) {
        const { code } = await send(`${admin}/enrolment-codes`, 'POST', { uses }, token, 201);
        await each(admitted.slice(at, at + uses), 4, (machine) => machine.enrol(code));
    }
    const revoked = admitted.filter((_, at) => at % 10 === 3);
    await each(revoked, 4, ({ id }) => send(`${admin}/devices/${id}/revoke`, 'POST', undefined, token, 200));
    const waiting = HOSTILE.slice(0, WAITING).map((name) => new Machine(vault, slug, name));
    await each(waiting, 1, (machine) => machine.enrol());
    for (const name of ['runner-*', '*', 'מחשב-*', '<script>*']) {
        await send(`${admin}/enrolment-codes`, 'POST', { uses: 3, name }, token, 201);
    }
    return { waiting, denied, revoked, active: admitted.filter((_, at) => at % 10 !== 3) };
}

const skillText = (name, description, text) =>
    `---\nname: ${name}\ndescription: ${JSON.stringify(description)}\ntags: [test]\n---\n${text}\n`;

/** A change that an app asks for, by its number. */
function change(at, ofSkill) {
    const name = `wanted-${String(at).padStart(3, '0')}`;
    if (at % 20 === 3) return ['install', { source: 'git', identifier: `example/skills/${name}` }];
    if (at % 20 === 4 && ofSkill) return ['remove', { name: ofSkill(at) }];
    if (at % 20 === 5 && ofSkill) {
        return ['propose', { skill_md: skillText(ofSkill(at), 'Reviews a change.', 'Read all of it.\n'.repeat(50)) }];
    }
    if (at === 6) {
        const long = Array.from({ length: 6500 }, (_, line) => `Line ${line} <b>&"'</b> of a long text.`).join('\n');
        const resources = Array.from({ length: 200 }, (_, file) => ({ path: `references/file-${file}.md`, content: `File ${file}.\n` }));
        return ['propose', { skill_md: skillText(name, 'Is as large as a page can be.', long), resources }];
    }
    if (at === 7) {
        return ['propose', { skill_md: skillText('w'.repeat(64), `${'W'.repeat(300)}`, 'W'.repeat(4000)) }];
    }
    const hostile = HOSTILE[at % 40];
    const words = hostile ? `${hostile} asks for a skill.` : 'Sets up what a project needs.';
    return ['propose', { skill_md: skillText(name, words, `${words}\n\nRead the profile of the shell, then propose what is missing.`) }];
}

/** Most drafts of an author that wait beside those which all authors share. */
const OWN = 4;

/**
 * Sends drafts, `count` of which wait in the end, and others that were decided. `ofSkill` names a skill of
 * the vault. Answers the ids by kind.
 */
export async function drafts({ vault, slug, token, members, count, from = 0, decided = 40, ofSkill }) {
    const admin = `${vault}/admin/vaults/${slug}/drafts`;
    const ids = {};
    const make = async (author, at) => {
        const [kind, asked] = change(at, ofSkill);
        const made = await send(`${admin}?kind=${kind}`, 'POST', asked, author.token, 201);
        (ids[made.kind] ??= []).push(made.id);
        return made.id;
    };
    let at = from;
    for (let number = 0; number < decided; number += 1) {
        const id = await make(members[number % members.length], at);
        at += 1;
        if (number % 4 === 3) {
            const by = members[number % members.length].token;
            await send(`${admin}/${id}`, 'DELETE', undefined, by, 200);
        } else {
            const reason = `${HOSTILE[number % HOSTILE.length]} is not needed.`;
            await send(`${admin}/${id}/declined`, 'POST', { reason }, token, 200);
        }
    }
    await each(Array.from({ length: count }, (_, number) => at + number), 4, (number) => {
        const author = members[number % members.length];
        return make(author, number);
    });
    return ids;
}

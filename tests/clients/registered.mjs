// Clients as they register, word for word: each sends what the named program sends, the person keeps the ticks of the consent page as they
// are shown and presses Allow, and the client lists the tools with its token.
//
//   node registered.mjs
//
// VAULT_REMOTE_URL and the account as for the other walks. CLIENTS_DOCUMENTS names a service that knows the document of mcp-remote; without
// it that way is left out, since a document lies at a public address.
import { createHash, randomBytes } from 'node:crypto';

import { Walk, expect, settings } from './common.mjs';
import { consent } from './person.mjs';

const EDITOR_GRANTS = ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'];

// The scope is that of the service's challenge, as these clients take it from there.
const CLIENTS = [
    // @modelcontextprotocol/inspector 2.12.0
    ['inspector', (scope) => ({
        redirect_uris: ['http://localhost:6274/oauth/callback'],
        token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        client_name: 'MCP Inspector',
        client_uri: 'https://github.com/modelcontextprotocol/inspector',
        scope,
        application_type: 'native',
    })],
    // mcp-remote 0.15.1
    ['mcp-remote', (scope) => ({
        redirect_uris: ['http://localhost:3334/oauth/callback'],
        token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        client_name: 'MCP CLI Client',
        client_uri: 'https://github.com/modelcontextprotocol/mcp-cli',
        software_id: '2e6dc280-f3c3-4e01-99a7-8181dbd1d23d',
        software_version: '0.15.1',
        scope,
        application_type: 'native',
    })],
    // Builds of Visual Studio Code, which registers those of its grants that the service has; it takes the answer at the last address.
    ['six addresses', (scope, { grant_types_supported }) => ({
        client_name: 'Visual Studio Code',
        client_uri: 'https://code.visualstudio.com',
        grant_types: grant_types_supported.filter((grant) => EDITOR_GRANTS.includes(grant)),
        response_types: ['code'],
        redirect_uris: [
            'https://insiders.vscode.dev/redirect', 'https://vscode.dev/redirect',
            'http://localhost/', 'http://127.0.0.1/', 'http://localhost:33418/', 'http://127.0.0.1:33418/',
        ],
        scope,
        token_endpoint_auth_method: 'none',
        application_type: 'native',
    })],
];

/** The document that the service at CLIENTS_DOCUMENTS knows, and the address in it. */
const DOCUMENT = 'https://mcp-remote.example/client.json';
const DOCUMENT_REDIRECT = 'http://localhost:3334/oauth/callback';

async function json(url, options, status = 200) {
    const response = await fetch(url, { signal: AbortSignal.timeout(30_000), ...options });
    const text = await response.text();
    expect(response.status === status, `${status} of ${url}, not ${response.status} ${text.slice(0, 300)}`);
    return JSON.parse(text);
}

const sent = (value) => ({ method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(value) });

/** What the service says to a client that has no token: its scope, its resource and its authorization server. */
async function discover(endpoint) {
    const refused = await fetch(endpoint, { ...sent({ jsonrpc: '2.0', id: 1, method: 'ping' }), signal: AbortSignal.timeout(30_000) });
    expect(refused.status === 401, `401 without a token, not ${refused.status}`);
    const challenge = refused.headers.get('www-authenticate') ?? '';
    const word = (name) => new RegExp(`${name}="([^"]*)"`).exec(challenge)?.[1];
    const resource = await json(word('resource_metadata'));
    const issuer = new URL(resource.authorization_servers[0]);
    const metadata = await json(`${issuer.origin}/.well-known/oauth-authorization-server${issuer.pathname.replace(/\/$/, '')}`);
    return { scope: word('scope'), resource: resource.resource, metadata };
}

/** Walks from the authorize page to the token. */
async function signIn({ scope, resource, metadata }, client_id, redirect_uri) {
    const verifier = randomBytes(32).toString('base64url');
    const asked = new URL(metadata.authorization_endpoint);
    asked.search = new URLSearchParams({
        response_type: 'code', client_id, redirect_uri, state: randomBytes(16).toString('hex'), resource,
        code_challenge: createHash('sha256').update(verifier).digest('base64url'), code_challenge_method: 'S256', ...(scope ? { scope } : {}),
    });
    const back = await consent(asked, null, settings.email, settings.password);
    expect(back.searchParams.get('state') === asked.searchParams.get('state'), 'the state');
    expect(back.href.startsWith(redirect_uri), `an answer at ${redirect_uri}, not ${back.href}`);
    const form = { grant_type: 'authorization_code', code: back.searchParams.get('code'), redirect_uri, client_id, code_verifier: verifier, resource };
    const token = await json(metadata.token_endpoint, { method: 'POST', body: new URLSearchParams(form) });
    expect(token.access_token && token.refresh_token, 'an access and a refresh token');
    return token;
}

/** One call of `/mcp`; the answer may be JSON or a stream of one event. */
async function call(endpoint, token, session, message) {
    const response = await fetch(endpoint, {
        method: 'POST',
        headers: {
            authorization: `Bearer ${token}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream',
            'mcp-protocol-version': '2025-11-25', ...(session ? { 'mcp-session-id': session } : {}),
        },
        body: JSON.stringify({ jsonrpc: '2.0', ...message }),
        signal: AbortSignal.timeout(30_000),
    });
    const text = await response.text();
    expect(response.ok, `${message.method} to be answered, not ${response.status} ${text.slice(0, 300)}`);
    const events = text.split('\n').filter((line) => line.startsWith('data:') && line.includes('{')).map((line) => line.slice(5));
    const body = text.trim() === '' ? {} : JSON.parse(events.at(-1) ?? text);
    expect(!body.error, `${message.method}, not ${JSON.stringify(body.error)}`);
    return { result: body.result, session: response.headers.get('mcp-session-id') ?? session };
}

async function listTools(endpoint, token, title) {
    const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: title, version: '1' } };
    const { session } = await call(endpoint, token, undefined, { id: 1, method: 'initialize', params });
    await call(endpoint, token, session, { method: 'notifications/initialized' });
    const { result } = await call(endpoint, token, session, { id: 2, method: 'tools/list' });
    expect(result.tools.length > 0, 'tools');
    return `${result.tools.length} tools`;
}

async function walk(title, endpoint, register) {
    const steps = new Walk(title);
    const found = await steps.step('discovery', () => discover(endpoint));
    const client = await steps.step('client', () => register(found));
    const token = await steps.step('consent as shown', async () => {
        const token = await signIn(found, client.id, client.redirect);
        return { ...token, note: `scope ${token.scope}` };
    });
    await steps.step('tools/list', () => listTools(endpoint, token.access_token, title));
}

for (const [title, registration] of CLIENTS) {
    await walk(title, settings.url, async ({ scope, metadata }) => {
        const asked = registration(scope, metadata);
        const made = await json(metadata.registration_endpoint, sent(asked), 201);
        expect(made.redirect_uris.join(' ') === asked.redirect_uris.join(' '), `all ${asked.redirect_uris.length} addresses`);
        return { id: made.client_id, redirect: asked.redirect_uris.at(-1), note: `${asked.redirect_uris.length} addresses` };
    });
}
if (process.env.CLIENTS_DOCUMENTS) {
    const endpoint = new URL(`${process.env.CLIENTS_DOCUMENTS}/mcp`);
    await walk('mcp-remote document', endpoint, async ({ metadata }) => {
        expect(metadata.client_id_metadata_document_supported === true, 'a service that reads documents');
        return { id: DOCUMENT, redirect: DOCUMENT_REDIRECT, note: DOCUMENT };
    });
}

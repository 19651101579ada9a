// The npm client of the first line, @modelcontextprotocol/sdk: the whole walk from the address alone.
import { Provider, Walk, consent, expect, load, looksRight, reads, settings, write } from './common.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { UnauthorizedError } = load('@modelcontextprotocol/sdk/client/auth.js');

const title = 'npm sdk 1.32.2';
const walk = new Walk(title);
let provider = new Provider(title);

async function connect() {
    const client = new Client({ name: title, version: '1' });
    const transport = new StreamableHTTPClientTransport(settings.url, { authProvider: provider });
    await client.connect(transport);
    return client;
}

/** Asks to connect, is sent to the browser, and comes back with these scopes. */
async function signIn(scopes) {
    await walk.step('discovery, register', async () => {
        const transport = new StreamableHTTPClientTransport(settings.url, { authProvider: provider });
        const refused = await new Client({ name: title, version: '1' }).connect(transport).catch((error) => error);
        expect(refused instanceof UnauthorizedError, `UnauthorizedError, not ${refused}`);
        return looksRight(provider.asked);
    });
    await walk.step('consent', async () => {
        const back = await consent(provider.takeAsked(), scopes);
        expect(back.searchParams.get('state') === provider.kept.state, 'the state');
        const transport = new StreamableHTTPClientTransport(settings.url, { authProvider: provider });
        await transport.finishAuth(back.searchParams.get('code'));
        expect(provider.kept.tokens.scope === scopes.join(' '), `the scope ${scopes}`);
        return `${back.note}; scope ${provider.kept.tokens.scope}`;
    });
}

await signIn(['read']);
let client = await walk.step('initialize', async () => {
    const client = await connect();
    return Object.assign(client, { note: `${client.getServerVersion().name} ${client.getServerVersion().version}` });
});
await reads(walk, client);
await walk.step('refresh', async () => {
    const before = provider.kept.tokens;
    provider.kept.tokens = { ...before, access_token: 'vat_junk' };
    await client.listTools();
    expect(provider.kept.tokens.refresh_token !== before.refresh_token, 'a new refresh token');
    expect(!provider.asked, 'no browser');
    return 'a junk access token: refreshed, no browser';
});
// This line of clients refreshes where it is asked to step up, and then says so: the page is never opened.
await walk.step('write without scope', async () => {
    const refused = await write(client, title).then(() => 'a write', (error) => error);
    expect(refused instanceof Error && /403|scope/i.test(refused.message), `403, not ${refused}`);
    expect(!provider.asked, 'no browser');
    return `refused: ${refused.message.slice(0, 60)}`;
});
provider = new Provider(title);
await signIn(['read', 'write']);
client = await connect();
await walk.step('write', () => write(client, title));
await client.close();

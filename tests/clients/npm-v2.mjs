// The npm client of the second line, @modelcontextprotocol/client: the whole walk from the address alone, in the era named by the first
// argument: `legacy` (initialize) or `auto` (2026-07-28, found by server/discover).
import { Provider, Walk, consent, expect, load, looksRight, reads, settings, write } from './common.mjs';

const { Client, StreamableHTTPClientTransport, UnauthorizedError } = load('@modelcontextprotocol/client');
const { SkillsClient } = load('@modelcontextprotocol/client/ext/skills');

const mode = process.argv[2];
const title = `npm client 2.4.0 ${mode === 'auto' ? 'new' : 'old'}`;
const walk = new Walk(title);
const provider = new Provider(title);
const fresh = () => new Client({ name: title, version: '1' }, { versionNegotiation: { mode } });
const carrier = () => new StreamableHTTPClientTransport(settings.url, { authProvider: provider });

async function back(scopes) {
    const address = await consent(provider.takeAsked(), scopes);
    // The parameters, not the code alone: the issuer is checked too.
    await carrier().finishAuth(address.searchParams);
    expect(provider.kept.tokens.scope === scopes.join(' '), `the scope ${scopes}, not ${provider.kept.tokens.scope}`);
    return `${address.note}; scope ${provider.kept.tokens.scope}`;
}

await walk.step('discovery, register', async () => {
    const refused = await fresh().connect(carrier()).catch((error) => error);
    expect(refused instanceof UnauthorizedError, `UnauthorizedError, not ${refused}`);
    return looksRight(provider.asked);
});
await walk.step('consent', () => back(['read']));
const client = fresh();
await walk.step('connect', async () => {
    await client.connect(carrier());
    const version = client.getNegotiatedProtocolVersion();
    expect(mode !== 'auto' || version === '2026-07-28', `2026-07-28, not ${version}`);
    return `${client.getServerVersion().name} ${client.getServerVersion().version}, revision ${version}`;
});
await reads(walk, client);
await walk.step('skills extension', async () => {
    const skills = new SkillsClient(client);
    expect(skills.supported && skills.directoryRead, 'the extension with directoryRead');
    const { skills: listed } = await skills.list();
    let files = 0;
    for (const entry of listed.slice(0, 3)) {
        const { skill } = await skills.get(entry.uri);
        for (const resource of skill.resources) {
            const file = await skills.read(skill, resource.uri);
            expect(file.verified, `${resource.uri} verified`);
            files += 1;
        }
        const folder = await skills.readDirectory(entry.uri.replace(/\/SKILL\.md$/, ''));
        expect(folder.resources.some((child) => child.uri === entry.uri), 'SKILL.md in its folder');
    }
    return `${listed.length} listed, ${files} files read and verified`;
});
await walk.step('refresh', async () => {
    const before = provider.kept.tokens;
    provider.kept.tokens = { ...before, access_token: 'vat_junk' };
    await client.callTool({ name: 'skill_list', arguments: {} });
    expect(provider.kept.tokens.refresh_token !== before.refresh_token, 'a new refresh token');
    expect(!provider.asked, 'no browser');
    return 'a junk access token: refreshed, no browser';
});
await walk.step('step-up', async () => {
    const refused = await write(client, title).then(() => 'a write', (error) => error);
    expect(refused instanceof UnauthorizedError, `UnauthorizedError, not ${refused}`);
    const asked = looksRight(provider.asked);
    return `${asked}; ${await back(['read', 'write'])}`;
});
await walk.step('write', () => write(client, title));
await client.close();

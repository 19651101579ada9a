// A door in front of a vault, for a tester that cannot send headers of its own: signs in as the owner, then passes everything on and gives
// requests to /mcp without a token the owner's.
//
//   node door.mjs PORT VAULT PUBLIC_URL     VAULT is where the vault really listens; prints one line when the door is open
import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';

import { consent } from '../clients/person.mjs';

const [port, vault, base] = process.argv.slice(2);
const own = `127.0.0.1:${port}`;
const { protocol, hostname, port: vaultPort } = new URL(vault);
let bearer;

const server = http.createServer((request, response) => {
    // As they came: what a header is called and holds is what the scenarios are about. But the door's own name means the vault's.
    const headers = request.rawHeaders.map((text, at) => (at % 2 && request.rawHeaders[at - 1].toLowerCase() === 'host' && text === own ? new URL(base).host : text));
    if (bearer && request.url.split('?')[0] === '/mcp' && !request.headers.authorization) headers.push('Authorization', `Bearer ${bearer}`);
    const onward = (protocol === 'https:' ? https : http).request({ hostname, port: vaultPort, method: request.method, path: request.url, headers, setHost: false }, (answer) => {
        response.writeHead(answer.statusCode, answer.rawHeaders);
        answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    request.pipe(onward);
});
await new Promise((open) => server.listen(port, '127.0.0.1', open));

async function json(response, status) {
    if (response.status !== status) throw new Error(`${response.url}: ${response.status} ${await response.text()}`);
    return response.json();
}
const redirect_uri = 'http://127.0.0.1/callback';
const { client_id } = await json(await fetch(`${base}/oauth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ client_name: 'conformance', redirect_uris: [redirect_uri], token_endpoint_auth_method: 'none' }),
}), 201);
const code_verifier = randomBytes(32).toString('base64url');
const asked = new URL(`${base}/oauth/authorize`);
asked.search = new URLSearchParams({
    response_type: 'code',
    client_id,
    redirect_uri,
    scope: 'read write',
    state: 'door',
    code_challenge: createHash('sha256').update(code_verifier).digest('base64url'),
    code_challenge_method: 'S256',
});
const back = await consent(asked, ['read', 'write'], process.env.VAULT_ADMIN_EMAIL, process.env.VAULT_ADMIN_PASSWORD);
bearer = (await json(await fetch(`${base}/oauth/token`, {
    method: 'POST',
    body: new URLSearchParams({ grant_type: 'authorization_code', client_id, redirect_uri, code: back.searchParams.get('code'), code_verifier }),
}), 200)).access_token;
console.log(`open at ${own}`);

// The authorization server's scenarios: the tester prints an authorize address and waits for the code, a person at a browser goes there.
//
//   node authorization.mjs CONFORMANCE PUBLIC_URL REVISION     CONFORMANCE is the tester's program
import { spawn } from 'node:child_process';
import http from 'node:http';
import net from 'node:net';

import { consent } from '../clients/person.mjs';

const [conformance, base, revision] = process.argv.slice(2);
const port = await new Promise((found) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
        const { port } = server.address();
        server.close(() => found(port));
    });
});
const redirect = `http://127.0.0.1:${port}/callback`;
const registered = await fetch(`${base}/oauth/register`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ client_name: 'conformance', redirect_uris: [redirect], token_endpoint_auth_method: 'none' }),
});
const { client_id } = await registered.json();
const tester = spawn(process.execPath, [conformance, 'authorization', '--url', base, '--client-id', client_id, '-p', String(port), '--resource', `${base}/mcp`, '--spec-version', revision], {
    stdio: ['ignore', 'pipe', 'inherit'],
});
const deadline = setTimeout(() => tester.kill(), 100_000);
let said = '';
let walked = false;
tester.stdout.on('data', async (part) => {
    process.stdout.write(part);
    said += part;
    const asked = new RegExp(`${base.replaceAll('.', '\\.')}/oauth/authorize\\S+`).exec(said);
    if (!asked || walked || !said.slice(asked.index).includes('\n')) return;
    walked = true;
    const back = await consent(new URL(asked[0]), ['read', 'write'], process.env.VAULT_ADMIN_EMAIL, process.env.VAULT_ADMIN_PASSWORD);
    http.get(back, (answer) => answer.resume());
});
tester.on('exit', (code) => {
    clearTimeout(deadline);
    process.exit(code ?? 1);
});

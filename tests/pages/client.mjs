// A client on this computer, as an app of a person is: it registers, sends people to the consent page and takes their code.
import { createHash, randomBytes } from 'node:crypto';
import http from 'node:http';

export function expect(good, words) {
    if (!good) throw new Error(`expected ${words}`);
}

export async function json(url, options, status) {
    const response = await fetch(url, options);
    expect(response.status === status, `${status} of ${url}, not ${response.status} ${await response.clone().text()}`);
    return response.json();
}

export const post = (url, value, token) => json(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) },
    body: JSON.stringify(value),
}, 201);

export class Client {
    /** Listens on loopback for the answer. */
    static async start() {
        const client = new Client();
        client.server = http.createServer((request, response) => {
            client.called = new URL(request.url, 'http://127.0.0.1').searchParams;
            response.setHeader('content-type', 'text/html');
            response.end('<!doctype html><link rel="icon" href="data:,"><title>back</title>back at the app');
        });
        await new Promise((open) => client.server.listen(0, '127.0.0.1', open));
        client.back = `http://127.0.0.1:${client.server.address().port}/callback`;
        return client;
    }

    /** The query of the last answer. */
    called;

    verifier = randomBytes(32).toString('base64url');

    /** Registers under this name; answers go to `redirect`. */
    async register(base, client_name, redirect = this.back) {
        return (await post(`${base}/oauth/register`, { client_name, redirect_uris: [redirect] })).client_id;
    }

    /** The address of the consent page. */
    authorize(base, client_id, redirect_uri = this.back, scope = 'read write') {
        const url = new URL(`${base}/oauth/authorize`);
        url.search = new URLSearchParams({
            response_type: 'code', client_id, redirect_uri, scope, state: 'the state',
            code_challenge: createHash('sha256').update(this.verifier).digest('base64url'), code_challenge_method: 'S256',
        });
        return url.href;
    }

    /** The access token for the code of the last answer. */
    async token(base, client_id) {
        const body = new URLSearchParams({
            grant_type: 'authorization_code', client_id, redirect_uri: this.back, code: this.called.get('code'), code_verifier: this.verifier,
        });
        return (await json(`${base}/oauth/token`, { method: 'POST', body }, 200)).access_token;
    }

    close() {
        this.server.close();
    }
}

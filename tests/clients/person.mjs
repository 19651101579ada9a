// The person at the browser.

function expect(good, words) {
    if (!good) throw new Error(`expected ${words}`);
}

/**
 * A person at a browser: signs in, accepts an invitation that is on the way, ticks these scopes, allows; with `null` in place of scopes, the
 * person leaves the ticks as the page shows them. Returns the address that the client is called back with.
 */
export async function consent(asked, scopes, email, password) {
    const cookies = new Map();
    let next = { url: asked, method: 'GET' };
    const statuses = [];
    let signedIn = false;
    for (let turn = 0; turn < 8; turn += 1) {
        const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
        if (next.body) Object.assign(headers, { origin: next.url.origin, 'content-type': 'application/x-www-form-urlencoded' });
        const response = await fetch(next.url, { method: next.method, headers, body: next.body?.toString(), redirect: 'manual', signal: AbortSignal.timeout(30_000) });
        statuses.push(response.status);
        for (const cookie of response.headers.getSetCookie()) {
            const [name, value] = cookie.split(';')[0].split('=');
            cookies.set(name, value);
        }
        const page = await response.text();
        if (response.status === 302 || response.status === 303) {
            const target = new URL(response.headers.get('location'), asked);
            if (target.origin === asked.origin) {
                next = { url: target, method: 'GET' };
                continue;
            }
            expect(response.status === 302 && target.searchParams.get('code'), `302 with a code, not ${response.status} with ${target.searchParams.get('error')}`);
            target.note = statuses.join(', ');
            return target;
        }
        expect(response.status === 200, `the sign-in or consent page, not ${response.status}`);
        const form = (path) => page.split('<form').find((part) => new RegExp(`action="[^"]*${path}"`).test(part));
        const text = (value) => value.replaceAll('&amp;', '&').replaceAll('&#38;', '&').replaceAll('&quot;', '"').replaceAll('&#39;', "'");
        const fields = (part) => new URLSearchParams([...part.matchAll(/type="hidden" name="([^"]*)" value="([^"]*)"/g)].map(([, name, value]) => [name, text(value)]));
        const target = (part) => new URL(text(/action="([^"]*)"/.exec(part)[1]), asked);
        const allow = form('/oauth/consent');
        const signIn = form('/oauth/login');
        const invited = form('/account/invitations');
        if (invited && !allow) {
            const body = fields(invited);
            body.append('decision', 'accept');
            next = { url: target(invited), method: 'POST', body };
        } else if (allow) {
            const body = fields(allow);
            const shown = [...allow.matchAll(/type="checkbox" name="scope" value="([^"]*)" checked/g)].map(([, scope]) => scope);
            for (const scope of scopes ?? shown) if (allow.includes(`value="${scope}"`)) body.append('scope', scope);
            const radio = /name="namespace" value="([^"]*)"/.exec(allow);
            if (!body.has('namespace') && radio) body.append('namespace', radio[1]);
            body.append('decision', 'approve');
            next = { url: target(allow), method: 'POST', body };
        } else {
            expect(signIn && !signedIn, 'a page of this walk, and a password that is right');
            signedIn = true;
            const body = fields(signIn);
            body.append('email', email);
            body.append('password', password);
            next = { url: target(signIn), method: 'POST', body };
        }
    }
    throw new Error('sign-in never came to an end');
}

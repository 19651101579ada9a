// The walk of tests/pages/run.
//
//   node walk.mjs CHROMIUM PROFILE VAULT FIXTURE AXE [PICTURES]
import { audit } from './audit.mjs';
import { Chromium } from './chromium.mjs';
import { Client, expect, post } from './client.mjs';
import { walkConsole, walkDeletion, walkEmpty } from './console.mjs';
import { Pages, WIDE } from './held.mjs';
import { enter, tick } from './keyboard.mjs';

const [program, profile, vault, fixture, axePath, pictures] = process.argv.slice(2);
const owner = { email: process.env.VAULT_ADMIN_EMAIL, password: process.env.VAULT_ADMIN_PASSWORD };
const member = { email: 'robin@example.com', password: 'seven quiet herons at dawn' };

const client = await Client.start();
const { back } = client;
const chromium = await Chromium.start(program, profile);
const pages = new Pages(pictures);
const { seen } = pages;

async function signIn(page, { email, password }) {
    await page.type('#email', email);
    await page.type('#password', password);
    await page.onward(() => page.click('main button.wide'));
}
const allow = (page) => page.onward(() => page.click('button[value=approve]'));

/** A script, a handler and a style put into a page do nothing, and the browser says why: the policy is in force, and heard of if broken. */
async function injected(page) {
    await page.ask(`(() => {
        const script = document.createElement('script');
        script.textContent = 'window.ran = true';
        const style = document.createElement('style');
        style.textContent = 'main { border-top-style: dashed !important }';
        const image = document.createElement('img');
        image.src = ${JSON.stringify(back)};
        image.setAttribute('onerror', 'window.ran = true');
        document.body.append(script, style, image);
    })()`);
    expect(await page.ask('new Promise((done) => setTimeout(() => done(window.ran), 200))') === undefined, 'no script run');
    expect(await page.ask('getComputedStyle(document.querySelector("main")).borderTopStyle') === 'solid', 'no style applied');
    const complaints = page.takeComplaints().join('\n');
    for (const part of ['script-src', 'style-src', 'img-src']) expect(complaints.includes(part), `the browser to say that ${part} forbids it, not ${complaints}`);
    console.log('ok      what is put into a page does nothing');
}

try {
    // --- the owner and a program on this computer -----------------------------------------------
    const page = await chromium.page();
    await page.size(...WIDE);
    await page.open(`${vault}/`);
    await seen(page, 'front', 200, ['This is a vault service', `vault cloud connect ${vault}/v/NAME`]);
    await page.open(`${vault}/v/default`);
    await seen(page, 'for-programs', 401, ['This is a vault service']);
    const name = 'Notes <script>window.ran=1</script> & "more"';
    const app = await client.register(vault, name);
    await page.open(client.authorize(vault, app));
    await seen(page, 'sign-in', 200, ['Sign in', name]);
    await injected(page);
    await page.open(client.authorize(vault, app));
    await signIn(page, { ...owner, password: 'not the password' });
    await seen(page, 'wrong-password', 422, ['Sign in']);
    expect(await page.ask('document.querySelector("#email").value') === owner.email, 'the address kept');
    expect(await page.ask('document.querySelector("#password").value') === '', 'the password not kept');
    await signIn(page, owner);
    await seen(page, 'consent', 200, [name, '127.0.0.1', owner.email, 'This request comes from a program on this computer']);
    expect(await page.ask('window.ran') === undefined, 'a name that runs nothing');
    await page.onward(() => page.click('button[value=deny]'));
    expect(client.called?.get('error') === 'access_denied' && client.called.get('state') === 'the state', `the app told of the refusal, not ${client.called}`);
    console.log('ok      the refusal reached the app');
    await page.open(client.authorize(vault, app));
    await allow(page);
    expect(client.called.get('code') && client.called.get('iss') === vault, `the app given a code, not ${client.called}`);
    console.log('ok      the code reached the app');
    expect(page.takeComplaints().length === 0, 'a quiet console all the way');
    const token = await client.token(vault, app);
    await page.open(`${vault}/account`);
    await seen(page, 'account', 200, [owner.email, name]);
    // --- what an app asks the person to confirm -------------------------------------------------
    const asked = await fetch(`${vault}/admin/vaults/default/enrolment-codes`, {
        method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: JSON.stringify({ uses: 50 }),
    });
    expect(asked.status === 403, `a confirmation wanted, not ${asked.status}`);
    const { confirmation } = await asked.json();
    await page.open(confirmation.url);
    if (await page.ask('document.querySelector("#password") !== null')) await signIn(page, owner);
    await seen(page, 'confirmation', 200, ['Confirm this?', 'Make an enrolment code for 50 machines of default.', name, owner.email]);
    await tick(page, 'input[name="sure"]');
    await enter(page, 'button[value="confirm"]');
    await seen(page, 'confirmed', 200, ['Confirmed']);
    const several = await fetch(`${vault}/admin/confirmations`, {
        method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
        body: JSON.stringify({ acts: [
            { act: 'create_code', uses: 60, expires_in: 3600, name: 'ci-*' },
            { act: 'invite_owner', email: 'new@example.com', scopes: ['read', 'write'] },
            { act: 'reset_pin' },
        ] }),
    });
    expect(several.status === 201, `a confirmation of several acts, not ${several.status}`);
    await page.open((await several.json()).url);
    await seen(page, 'confirmation-several', 200, [
        'Confirm these 3 changes?', 'I want these 3 changes to happen', 'Make an enrolment code for 60 machines of default.', 'Invite new@example.com',
    ]);
    await enter(page, 'button[value="decline"]');
    await seen(page, 'declined', 200, ['Declined']);
    await page.open(`${vault}/account/second-factor`);
    await seen(page, 'second-factor', 200, []);
    await page.open(`${vault}/oauth/password`);
    await seen(page, 'password', 200, ['Change your password', owner.email]);

    // --- other apps -----------------------------------------------------------------------------
    for (const [kind, title, redirect, words] of [
        ['web', 'Notebook', 'https://notebook.example/oauth/callback', ['notebook.example']],
        ['installed', 'An editor', 'com.example.editor:/callback', ['This request comes from an installed program']],
    ]) {
        await page.open(client.authorize(vault, await client.register(vault, title, redirect), redirect));
        await seen(page, `consent-${kind}`, 200, [title, ...words]);
    }

    // --- errors ---------------------------------------------------------------------------------
    await page.open(client.authorize(vault, 'cli_nobody'));
    await seen(page, 'unknown-app', 400, []);
    await page.open(client.authorize(vault, app, 'https://elsewhere.example/cb'));
    await seen(page, 'foreign-redirect', 400, []);

    // --- an invitation --------------------------------------------------------------------------
    await post(`${vault}/admin/users`, { email: member.email, scopes: ['read', 'write'] }, token);
    await page.open(client.authorize(vault, app, back, 'read write operator'));
    await signIn(page, owner);
    await allow(page);
    const operates = await client.token(vault, app);
    const { invite_url } = await post(`${vault}/admin/operator/accounts`, { email: member.email }, operates);
    const robin = await chromium.page();
    await robin.size(...WIDE);
    await robin.open(invite_url);
    await seen(robin, 'invitation', 200, ['Choose a password', new URL(vault).host]);
    await robin.type('#password', 'short');
    await robin.click('main button.wide');
    expect(await robin.ask('document.querySelector("#password").validity.tooShort'), 'the browser to say that it is too short');
    await robin.type('#password', member.password);
    await robin.onward(() => robin.click('main button.wide'));
    await seen(robin, 'invitation-done', 200, []);
    await robin.open(invite_url);
    await seen(robin, 'invitation-used', 404, []);
    await robin.open(client.authorize(vault, app));
    await signIn(robin, member);
    await seen(robin, 'invited-into', 200, ['Accept an invitation?', member.email]);
    await robin.onward(() => robin.click('[value=accept]'));
    await seen(robin, 'consent-member', 200, [member.email]);
    expect(await robin.ask('document.querySelector("[value=write]").checked'), 'writing ticked for a program on this computer that asks for it');
    // --- the console ----------------------------------------------------------------------------
    const addresses = await walkConsole({ page, vault, slug: 'default', member, owner, app: name, client: app, token, seen, axePath });
    await robin.open(`${vault}/console/default`);
    await seen(robin, 'console-member', 200, ['You are a member of default', `${vault}/mcp`]);

    // --- too many wrong passwords ---------------------------------------------------------------
    await robin.open(client.authorize(vault, app));
    await robin.onward(() => robin.click('dd button.link'));
    await seen(robin, 'another-account', 200, ['Sign in']);
    // Six are too many within the time that the limit counts; some may fall into the time before.
    for (let turn = 0; turn < 12 && robin.response.status !== 429; turn += 1) await signIn(robin, { ...member, password: 'not the password' });
    await seen(robin, 'too-many', 429, ['Sign in']);

    // --- an app that is known by a document, two vaults -----------------------------------------
    const hosted = await chromium.page();
    await hosted.size(...WIDE);
    const first = await client.register(fixture, 'pages');
    await hosted.open(client.authorize(fixture, first, back, 'read write operator'));
    await signIn(hosted, owner);
    await seen(hosted, 'consent-operator', 200, ['acts as an operator of the whole service']);
    await allow(hosted);
    const operator = await client.token(fixture, first);
    await post(`${fixture}/admin/operator/namespaces`, { slug: 'second-vault', owner: owner.email }, operator);
    await hosted.open(client.authorize(fixture, 'https://notes.example/client.json', 'https://notes.example/callback'));
    await seen(hosted, 'consent-document', 200, ['described by notes.example', 'Which vault?', 'second-vault']);
    const empty = await walkEmpty({ page: hosted, vault: fixture, slug: 'second-vault', seen, axePath });
    if (process.env.PAGES_AUDIT) {
        pages.failed = await audit(program, page, addresses) || pages.failed;
        pages.failed = await audit(program, hosted, empty) || pages.failed;
    }
    await walkDeletion({ page: hosted, vault: fixture, slug: 'second-vault', owner, seen, axePath });
} catch (error) {
    pages.failed = true;
    console.log(`failed  ${error.stack}`);
} finally {
    await chromium.end();
    client.close();
}
process.exit(pages.failed ? 1 : 0);

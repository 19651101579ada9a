// Passkeys in a browser with an authenticator in software, by keyboard: added, used as sign-in and in place of a code, removed; and the
// same pages in a browser that runs no script.
//
//   node passkeys.mjs CHROMIUM PROFILE VAULT AXE [PICTURES]
//
// VAULT is at `http://localhost`, the one host where browsers allow passkeys over plain HTTP.
import { createHmac } from 'node:crypto';

import { Chromium } from './chromium.mjs';
import { expect } from './client.mjs';
import { holder } from './console.mjs';
import { Pages, WIDE } from './held.mjs';
import { enter, fill, follow, signIn, submit, tabTo } from './keyboard.mjs';

const [program, profile, vault, axePath, pictures] = process.argv.slice(2);
const owner = { email: process.env.VAULT_ADMIN_EMAIL, password: process.env.VAULT_ADMIN_PASSWORD };

const chromium = await Chromium.start(program, profile, { names: ['localhost'] });
const pages = new Pages(pictures);

/** The six digits that an authenticator app shows for this key now. */
function code(secret) {
    const bits = [...secret].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0')).join('');
    const key = Buffer.from(bits.match(/.{8}/g).map((byte) => parseInt(byte, 2)));
    const step = Buffer.alloc(8);
    step.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000)));
    const hash = createHmac('sha1', key).update(step).digest();
    const number = hash.readUInt32BE(hash[19] & 15) & 0x7fff_ffff;
    return String(number % 1_000_000).padStart(6, '0');
}

/** A person whose device makes and uses passkeys; `verify(false)` is a finger that the device does not know. */
async function person() {
    const page = await chromium.page();
    await page.size(...WIDE);
    await page.send('WebAuthn.enable', {});
    const options = { protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true };
    const { authenticatorId } = await page.send('WebAuthn.addVirtualAuthenticator', { options: { ...options, automaticPresenceSimulation: true } });
    const verify = (isUserVerified) => page.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified });
    const held = await holder(page, pages.seen, axePath, []);
    return { page, verify, held };
}

const at = async (page, path) => {
    const address = await page.ask('location.href');
    expect(address === vault + path, `${vault}${path}, not ${address}: ${(await page.ask('document.body.innerText')).slice(0, 300)}`);
};
const signOut = (page) => enter(page, 'footer button.link, dd button.link');

/** Waits until the page of a passkey says that the device gave none. */
async function refused(page) {
    for (let turn = 0; turn < 100; turn += 1) {
        if ((await page.ask('document.querySelector("#state").textContent')).includes('returned no passkey')) return;
        await new Promise((done) => setTimeout(done, 100));
    }
    throw new Error(`the page says ${await page.ask('document.querySelector("#state").textContent')}`);
}

/** On the page of a passkey: the device refuses, the person sees why and tries again with the key that has the focus. */
async function tryAgain({ page, verify, held }, name, words) {
    await refused(page);
    await held(name, ['The browser returned no passkey', ...words]);
    expect(await page.ask('document.activeElement.id') === 'go', 'the focus on the button');
    await verify(true);
    await submit(page);
}

try {
    const owned = await person();
    const { page, verify, held } = owned;
    // --- added ----------------------------------------------------------------------------------
    await page.open(`${vault}/account`);
    await held('passkey-sign-in', ['Sign in with a passkey']);
    await signIn(page, owner);
    await follow(page, 'Add a passkey');
    await held('passkeys-none', ['You have no passkey', 'Your password still signs in on its own']);
    await verify(false);
    await tabTo(page, '#name');
    await page.ask('document.querySelector("#name").select()');
    await fill(page, '#name', 'Laptop of the owner');
    await submit(page);
    await tryAgain(owned, 'passkey-new', ['Laptop of the owner', owner.email]);
    await at(page, '/account/passkeys');
    await held('passkeys', ['Laptop of the owner', 'never used']);

    // --- as sign-in -----------------------------------------------------------------------------
    await signOut(page);
    await page.open(`${vault}/account`);
    await verify(false);
    await enter(page, 'form[action$="/oauth/passkey"] button');
    await tryAgain(owned, 'passkey-use', ['Sign in another way']);
    await at(page, '/account');
    await held('passkey-signed-in', ['Passkeys (1)']);

    // --- in place of a code ---------------------------------------------------------------------
    await page.open(`${vault}/account/second-factor`);
    const secret = await page.ask('document.querySelector("[name=secret]").value');
    await fill(page, '#new_code', code(secret));
    await fill(page, '#password', owner.password);
    await submit(page);
    const codes = await page.ask('[...document.querySelectorAll(".codes code")].map((one) => one.textContent)');
    expect(codes.length === 10, `ten recovery codes, not ${codes}`);
    await page.open(`${vault}/account`);
    await signOut(page);
    await page.open(`${vault}/account`);
    await signIn(page, owner);
    await held('passkey-or-code', ['Enter a code', 'Use a passkey instead']);
    await verify(false);
    await enter(page, 'form[action$="/oauth/passkey"] button');
    await tryAgain(owned, 'passkey-for-code', ['Without a passkey', 'Code from your authenticator app']);
    await at(page, '/account');

    // --- without scripts ------------------------------------------------------------------------
    const plain = await chromium.page();
    await plain.size(...WIDE);
    await plain.withoutScripts();
    await plain.open(`${vault}/account`);
    await enter(plain, 'form[action$="/oauth/passkey"] button');
    await pages.seen(plain, 'passkey-without-script', 200, ['A passkey needs JavaScript']);
    expect(await plain.ask('document.querySelector("#go").hidden'), 'no button that does nothing');
    await follow(plain, 'Sign in another way');
    await signIn(plain, owner);
    await pages.seen(plain, 'code-without-script', 200, ['Enter a code']);
    await fill(plain, '#code', codes[0]);
    await submit(plain);
    await at(plain, '/account');
    console.log('ok      password and code sign in without a script');

    // --- removed --------------------------------------------------------------------------------
    await page.open(`${vault}/account/passkeys`);
    await enter(page, 'button[aria-label="Remove Laptop of the owner"]');
    await at(page, '/account/passkeys');
    await held('passkeys-removed', ['You have no passkey']);
    await signOut(page);
    await page.open(`${vault}/account`);
    await enter(page, 'form[action$="/oauth/passkey"] button');
    let refused = false;
    for (let tries = 0; tries < 40 && !refused; tries += 1) {
        await new Promise((done) => setTimeout(done, 250));
        // While the browser goes to the next page, nothing answers.
        refused = await page.ask('document.querySelector("[role=alert]")?.textContent.includes("was not accepted")').catch(() => false);
    }
    expect(refused, 'a removed passkey to be refused');
    console.log('ok      a removed passkey signs nobody in');
} catch (error) {
    pages.failed = true;
    console.log(`failed  ${error.stack}`);
} finally {
    await chromium.end();
}
process.exit(pages.failed ? 1 : 0);

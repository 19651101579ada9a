// The walk of tests/pages/hosted: a tenant of a hosted service, from sign-up to a machine that pulls, then without and again with payment.
//
//   node hosted.mjs CHROMIUM PROFILE SERVICE CHECKOUT VAULT HOMES [PICTURES]
//
// SERVICE is the service's address, CHECKOUT that of the payment provider (localstack/payment.mjs), VAULT the program, HOMES a folder for
// the homes of the two machines. The person signs in at the OpenID provider, whichever it is that the service names.
import { Chromium } from './chromium.mjs';
import { programIn, reviewed } from './program.mjs';
import { expect } from './client.mjs';

const [program, profile, service, checkout, vault, homes, pictures] = process.argv.slice(2);
const slug = `tenant-${process.pid}`;
const address = `${service}/v/${slug}`;
const person = { email: `dana-${process.pid}@example.com`, password: 'any password will do' };

const done = (words) => console.log(`ok      ${words}`);

/** Tries until `work` answers something, for half a minute. */
async function until(words, work) {
    for (let turn = 0; turn < 60; turn += 1) {
        const found = await work();
        if (found) return found;
        await new Promise((go) => setTimeout(go, 500));
    }
    throw new Error(`${words}: not in time`);
}

const run = programIn(vault, homes);
const chromium = await Chromium.start(program, profile, { names: ['*.localhost'] });
const page = await chromium.page();

async function says(...words) {
    const text = await page.ask('document.body.innerText');
    for (const word of words) expect(text.includes(word), `"${word}" on ${await page.ask('location.href')}, which says: ${text.slice(0, 600)}`);
}

const pictureOf = async (name) => pictures && page.picture(pictures, `hosted-${name}`);

/** Opens an address of the service; signs in at the provider on the way where the page asks for it. */
async function openSignedIn(url) {
    await page.open(url);
    if (await page.ask(`!!document.querySelector('form[action$="/oauth/oidc/start"]')`)) {
        await pictureOf('sign-in');
        await page.click('form[action$="/oauth/oidc/start"] button');
        await atProvider();
    }
}

/** Whether a page is there whose address satisfies this expression, whole and drawn. */
const isThere = (expression) => page.ask(`document.readyState === 'complete' && (${expression})`).catch(() => false);

/**
 * The provider's own pages: who signs in, and that the service may know. The page of the service that leads there goes on by itself, and so
 * does the one that leads back.
 */
async function atProvider() {
    const atService = `location.href.startsWith(${JSON.stringify(`${service}/`)})`;
    const onTheWay = `!!document.querySelector('meta[http-equiv=refresh]') || location.pathname.includes('/oauth/oidc/')`;
    await until('the provider', () => isThere(`!(${atService}) && !!document.querySelector('[type=submit]')`));
    for (let turn = 0; turn < 4 && !(await isThere(atService)); turn += 1) {
        if (await page.ask('!!document.querySelector("[name=login]")')) {
            await page.type('[name=login]', person.email);
            await page.type('[name=password]', person.password);
        }
        await page.onward(() => page.click('[type=submit]'));
        await until('what follows', () => isThere(`(${atService}) ? !(${onTheWay}) : !!document.querySelector('[type=submit]')`));
    }
}

/** Allows what the program asks for, in the browser that is signed in. */
const signsIn = async (url) => {
    await openSignedIn(url);
    await page.onward(() => page.click('button[value=approve]'));
};

/** Links a machine and admits it in the console, by the fingerprint that the machine printed. */
async function linkAndAdmit(machine, vaultFingerprint) {
    const { data } = JSON.parse(await run(machine, ['link', address, '--expect-key', vaultFingerprint, '--yes', '--json']));
    await page.open(`${service}/console/${slug}/machines`);
    await pictureOf('machines');
    await page.onward(() => page.click('tbody a'));
    await says(data.device_fingerprint, 'waiting for your decision');
    await pictureOf('machine');
    await page.onward(() => page.click('button[value=admit]'));
    await says('admitted');
}

/** What the payment provider does about the subscription of a sign-up. */
async function payment(what) {
    await page.open(`${checkout}/subscriptions`);
    await page.onward(() => page.click(`button[value="${what}"]`));
    await says('customer.subscription.updated: 200 {"outcome":"taken"}');
}

let failed = false;
try {
    await page.size(1280, 860);
    // --- sign-up ---------------------------------------------------------------------------------
    await page.open(`${service}/`);
    await openSignedIn(`${service}/account/new-vault`);
    await says('Create a vault', person.email);
    await pictureOf('new-vault');
    await page.type('#slug', slug);
    await page.onward(() => page.click('main button.wide'));
    await says(slug, 'pending');
    await pictureOf('unpaid');
    done('signed in at the provider and reserved a name');

    // --- payment ---------------------------------------------------------------------------------
    const link = await page.ask(`document.querySelector('a[rel~=external]').href`);
    expect(link.startsWith(checkout), `a link to the checkout page, not ${link}`);
    await page.open(link);
    await page.onward(() => page.click('button[value=pay]'));
    await page.open(`${service}/`);
    await until('the vault', async () => {
        await page.open(`${service}/`);
        return page.ask(`document.body.innerText.includes(${JSON.stringify(`vault cloud connect ${address}`)})`);
    });
    await pictureOf('allocated');
    done('paid, and the vault is there');

    // --- the first release -----------------------------------------------------------------------
    await run('owner', ['cloud', 'connect', address, '--no-browser'], { signsIn });
    const drafts = JSON.parse(await run('owner', ['drafts', 'list', '--json'])).data;
    expect(drafts.length > 0, 'starter skills as drafts');
    // What `vault cloud pull --pending` asks on a terminal.
    for (const { id } of drafts) await reviewed(run, 'owner', ['drafts', 'accept', id]);
    await run('owner', ['sync', '--cloud', '--yes']);
    await page.open(`${service}/`);
    const steps = await page.ask('document.body.innerText');
    expect(!steps.includes('(pending)'), `every step done, not ${steps}`);
    done(`accepted ${drafts.length} starter skills and published them`);

    // --- machines --------------------------------------------------------------------------------
    const fingerprint = /vlt:\S+/.exec(await run('owner', ['key', 'show']))[0];
    await linkAndAdmit('laptop', fingerprint);
    await run('laptop', ['cloud', 'pull', '--yes']);
    done('admitted a machine in the console, and it pulled');

    // --- lapse and payment -----------------------------------------------------------------------
    await linkAndAdmit('second', fingerprint);
    await payment('unpaid');
    await page.open(`${service}/`);
    await says('lapsed');
    await pictureOf('lapsed');
    const refused = await run('second', ['cloud', 'pull', '--yes', '--json'], { status: 8 });
    expect(refused.includes('"subscription_lapsed"'), `the reason, not ${refused}`);
    done('without payment a machine sees the catalog and gets no bundle');
    await payment('active');
    await run('second', ['cloud', 'pull', '--yes']);
    done('paid again: the machine goes on at once');
} catch (error) {
    failed = true;
    console.log(`failed  ${error.stack}`);
    await pictureOf('failed');
} finally {
    await chromium.end();
}
process.exit(failed ? 1 : 0);

// The walk of tests/pages/run through the console of a given service: an owner admits a machine, finds out why an agent does not get a
// skill, declines a draft and ends an app, with the keyboard alone. Afterwards the machine and the app are gone again.
//
//   node given.mjs CHROMIUM PROFILE SERVICE AXE [PICTURES]
import { Chromium } from './chromium.mjs';
import { Client, expect } from './client.mjs';
import { admit, enrol, explainAgent, forget, holder } from './console.mjs';
import { decline, endApp, sendDrafts } from './console_rest.mjs';
import { Pages, WIDE } from './held.mjs';
import { enter, follow, goTo, signIn } from './keyboard.mjs';

const [program, profile, vault, axePath, pictures] = process.argv.slice(2);
const owner = { email: process.env.VAULT_ADMIN_EMAIL, password: process.env.VAULT_ADMIN_PASSWORD };
const MACHINE = `walk-${process.pid}`;

const client = await Client.start();
const chromium = await Chromium.start(program, profile, { names: ['*.localhost'] });
const pages = new Pages(pictures);

try {
    const page = await chromium.page();
    await page.size(...WIDE);
    const held = await holder(page, pages.seen, axePath, []);

    // --- the app of a person sends a draft, and a machine asks for access ------------------------
    const app = await client.register(vault, 'An agent to be ended');
    await page.open(client.authorize(vault, app));
    await signIn(page, owner);
    await enter(page, 'button[value=approve]');
    const token = await client.token(vault, app);
    await page.open(`${vault}/console`);
    const slug = await page.ask('location.pathname.split("/").at(-1)');
    expect(slug !== 'console', `${owner.email} to be a member of one vault alone`);
    await sendDrafts(vault, slug, token);
    await enrol(vault, slug, MACHINE);

    // --- the console -----------------------------------------------------------------------------
    await page.open(`${vault}/console/${slug}`);
    await held('overview', [`Overview of ${slug}`, 'access', 'draft']);
    await admit(page, held, MACHINE);
    await held('machine-admitted', ['The machine is admitted.', MACHINE]);
    await goTo(page, 'skills');
    await explainAgent(page, held, 'skills-of-agent');
    await decline(page, held);
    await endApp(page, held, app);

    // --- back as it was --------------------------------------------------------------------------
    await goTo(page, 'machines');
    await follow(page, MACHINE);
    await enter(page, 'a[href$="?confirm=revoke"]');
    await held('machine-revoke', [`Revoke the access of ${MACHINE}?`]);
    await enter(page, 'button.danger');
    await held('machine-revoked', ['access is revoked']);
    await forget(page, held, MACHINE);
} catch (error) {
    pages.failed = true;
    console.log(`failed  ${error.stack}`);
} finally {
    await chromium.end();
    client.close();
}
process.exit(pages.failed ? 1 : 0);

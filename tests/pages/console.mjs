// The walk through the owner console, for walk.mjs: by keyboard alone, as a person does who never saw a command line.
import { generateKeyPairSync, sign } from 'node:crypto';
import { readFile } from 'node:fs/promises';

import { expect } from './client.mjs';
import { DRAFTS, sendDrafts, walkApps, walkDeleted, walkDrafts, walkEmptyVault, walkPeople, walkRecords, walkReleases } from './console_rest.mjs';
import { PHONE, WIDE } from './held.mjs';
import { choose, enter, fill, follow, goTo, submit } from './keyboard.mjs';

/** Most bytes of a page. */
const MOST_BYTES = 100 * 1024;

/** A machine that asks for access; its key's fingerprint is on its page alone. */
export async function enrol(vault, slug, hostname) {
    const { publicKey, privateKey } = generateKeyPairSync('ed25519');
    const { x: key } = publicKey.export({ format: 'jwk' });
    const path = `${new URL(vault).pathname.replace(/\/$/, '')}/v/${slug}/devices`;
    const timestamp = String(Math.floor(Date.now() / 1000));
    const signature = sign(null, Buffer.from(`POST\n${path}\n${timestamp}`), privateKey).toString('base64url');
    const response = await fetch(new URL(path, vault), {
        method: 'POST',
        headers: {
            'content-type': 'application/json', 'x-vault-device': key, 'x-vault-timestamp': timestamp, 'x-vault-signature': signature,
        },
        body: JSON.stringify({ public_key: key, hostname }),
    });
    expect(response.status === 201, `a machine enrolled, not ${response.status} ${await response.text()}`);
}

/** What axe finds on the page that is there, on a phone and on a desk, light and dark. */
async function axe(page, source) {
    const found = [];
    for (const size of [PHONE, WIDE]) {
        for (const scheme of ['light', 'dark']) {
            await page.size(...size);
            await page.scheme(scheme);
            await page.ask(`${source};null`);
            const violations = await page.ask(`axe.run(document, { preload: false }).then((result) => result.violations.map((one) =>
                one.id + ': ' + one.nodes.map((node) => node.target.join(' ') + ' (' + node.any.concat(node.all, node.none).map((check) => check.message).join('; ') + ')').join(', ')))`);
            found.push(...violations.map((violation) => `${size[0]} ${scheme}: ${violation}`));
        }
    }
    await page.size(...WIDE);
    await page.scheme('light');
    return found;
}

/** Holds each page to what `seen` holds all pages to, to its size and to axe; keeps the addresses. */
export async function holder(page, seen, axePath, addresses) {
    const source = await readFile(axePath, 'utf8');
    return async (name, words) => {
        addresses.push(await page.ask('location.href'));
        const bytes = await page.ask('new TextEncoder().encode(document.documentElement.outerHTML).length');
        await seen(page, `console-${name}`, 200, words, async () => {
            expect(bytes < MOST_BYTES, `a page below ${MOST_BYTES} bytes, not ${bytes}`);
            const found = await axe(page, source);
            expect(found.length === 0, `nothing found by axe, not ${found.join(' | ')}`);
        });
    };
}

/** Admits the machine of this name. */
export async function admit(page, held, name) {
    await goTo(page, 'machines');
    await follow(page, name);
    await held('machine', ['This machine is waiting for your decision', 'dev:']);
    await enter(page, 'button[value="admit"]');
}

/** Removes the machine of this name, which has no access, from the list. */
export async function forget(page, held, name) {
    await follow(page, name);
    await held('machine-without-access', ['no access: denied or revoked']);
    await enter(page, 'main form button.plain');
    await held('machine-forgotten', ['The machine is forgotten.']);
}

/** Shows that an agent which a skill does not name does not get it, and why; what is chosen beside the agent stays. */
export async function explainAgent(page, held, name) {
    await choose(page, '#agent', 'Another agent');
    await enter(page, 'main form button[type="submit"]');
    await held(name, ['not shown', 'It is only meant for codex.']);
}

const MACHINES = ['Ada’s laptop', '"><script>window.ran=1</script>', 'W'.repeat(64), 'מחשב של דנה 👩'];

/** A machine is admitted, one is denied and forgotten, the others are denied together; a code is made and ended. */
async function walkMachines(page, held, vault, slug) {
    const [laptop, hostile] = MACHINES;
    await goTo(page, 'machines');
    await held('machines', ['4 machines are waiting', laptop]);
    expect(await page.ask('window.ran') === undefined, 'a name that runs nothing');
    await admit(page, held, laptop);
    await held('machines-admitted', ['The machine is admitted.', '3 machines are waiting']);
    await follow(page, laptop);
    await held('machine-admitted', ['admitted', 'none yet']);
    await enter(page, 'a[href$="?confirm=revoke"]');
    await held('machine-revoke', [`Revoke the access of ${laptop}?`]);
    await goTo(page, 'machines');
    await follow(page, hostile);
    await enter(page, 'button[value="deny"]');
    await held('machine-denied', ['The machine is denied.', '2 machines are waiting']);
    await forget(page, held, hostile);
    expect(!(await page.ask('document.body.innerText')).includes(hostile), 'no machine of that name any more');
    await enter(page, 'a[href$="?confirm=deny-pending"]');
    await held('machines-deny', ['Deny all waiting machines?']);
    await enter(page, 'button.danger');
    await held('machines-denied', ['The machines are denied.']);
    await enter(page, 'a[href$="/machines/codes"]');
    await held('codes', ['There is no enrolment code.']);
    await fill(page, '#machine-name', 'ci-*');
    await submit(page);
    await held('code', ['It is not shown again.', `vault link ${vault}/v/${slug} --code vec_`, 'ci-*']);
    await enter(page, 'main td button.link');
    await held('code-ended', ['The enrolment code no longer works.', 'There is no enrolment code.']);
}

/** Why does this person, this agent, this machine not get the skill? */
async function walkSkills(page, held, member, app) {
    await goTo(page, 'skills');
    await held('skills', ['greeting', 'release-notes']);
    await choose(page, '#who', member.email);
    await choose(page, '#app', app);
    await enter(page, 'main form button[type="submit"]');
    await held('skills-of-app', ['How this was decided', 'not shown', 'There is no policy, so members see nothing.']);
    await choose(page, '#who', 'An owner');
    await explainAgent(page, held, 'skills-of-agent');
    await choose(page, '#who', 'An admitted machine');
    await explainAgent(page, held, 'skills-of-machine');
    await enter(page, 'th a[href$="/skills/greeting"]');
    await held('skill', ['greeting', 'What each agent gets', 'Findings', 'SKILL.md', 'A made-up skill']);
    await enter(page, 'a[href*="file=noise.bin"]');
    await held('skill-file', ['This file is not text']);
}

/**
 * Walks the pages of the vault `slug`, in which the owner is signed in on `page` and `member` is a member; `token` is of the app with the
 * name `app` and the id `client`, which sends drafts. `seen` holds each page to what every page must keep. Returns the addresses of the pages.
 */
export async function walkConsole({ page, vault, slug, member, owner, app, client, token, seen, axePath }) {
    const addresses = [];
    const held = await holder(page, seen, axePath, addresses);
    for (const name of MACHINES) await enrol(vault, slug, name);
    await sendDrafts(vault, slug, token, DRAFTS);
    await page.open(`${vault}/console`);
    await held('overview', ['Overview', '4 machines ask for access']);
    await walkMachines(page, held, vault, slug);
    await walkSkills(page, held, member, app);
    await walkDrafts(page, held);
    await walkReleases(page, held);
    await walkPeople(page, held, member, owner);
    await walkRecords(page, held, slug);
    await walkApps(page, held, client);
    await page.open(`${vault}/console/absent`);
    await seen(page, 'console-absent', 404, ['This page does not exist']);
    return addresses;
}

/** Walks the pages of the vault `slug`, in which nothing was published. Returns their addresses. */
export async function walkEmpty({ page, vault, slug, seen, axePath }) {
    const addresses = [];
    const held = await holder(page, seen, axePath, addresses);
    await page.open(`${vault}/console/${slug}`);
    await walkEmptyVault(page, held, slug);
    return addresses;
}

/** Resets the pin of the vault `slug` and deletes it, as `owner`, who signs in again where the page asks for it. */
export async function walkDeletion({ page, vault, slug, owner, seen, axePath }) {
    const held = await holder(page, seen, axePath, []);
    await page.open(`${vault}/console/${slug}/namespace`);
    await walkDeleted(page, held, slug, owner);
    await page.open(`${vault}/console/${slug}`);
    await seen(page, 'console-deleted', 404, ['This page does not exist']);
}

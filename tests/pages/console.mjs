// The walk through the owner console, for walk.mjs: by keyboard alone, as a person does who never saw a command line.
import { generateKeyPairSync, sign } from 'node:crypto';
import { readFile } from 'node:fs/promises';

import { sendDrafts, walkApps, walkDrafts, walkEmptyVault, walkPeople, walkRecords, walkReleases } from './console_rest.mjs';
import { choose, enter, fill, goTo, submit } from './keyboard.mjs';

const PHONE = [390, 844];
const DESK = [1280, 860];
/** Most bytes of a page. */
const MOST_BYTES = 100 * 1024;

function expect(good, words) {
    if (!good) throw new Error(`expected ${words}`);
}

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
    for (const size of [PHONE, DESK]) {
        for (const scheme of ['light', 'dark']) {
            await page.size(...size);
            await page.scheme(scheme);
            await page.ask(`${source};null`);
            const violations = await page.ask(`axe.run(document, { preload: false }).then((result) => result.violations.map((one) =>
                one.id + ': ' + one.nodes.map((node) => node.target.join(' ') + ' (' + node.any.concat(node.all, node.none).map((check) => check.message).join('; ') + ')').join(', ')))`);
            found.push(...violations.map((violation) => `${size[0]} ${scheme}: ${violation}`));
        }
    }
    await page.size(...DESK);
    await page.scheme('light');
    return found;
}

/** Holds each page to what `seen` holds all pages to, to its size and to axe; keeps the addresses. */
export function holder(page, seen, source, addresses) {
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

/** A machine is admitted, others are denied, a code is made. */
async function walkMachines(page, held, vault, slug) {
    await goTo(page, 'machines');
    await held('machines', ['4 machines are waiting', 'Ada’s laptop']);
    expect(await page.ask('window.ran') === undefined, 'a name that runs nothing');
    const machine = await page.ask('[...document.querySelectorAll("th a")].find((link) => link.textContent === "Ada’s laptop").getAttribute("href")');
    await enter(page, `a[href="${machine}"]`);
    await held('machine', ['This machine is waiting for your decision', 'dev:']);
    await enter(page, 'button[value="admit"]');
    await held('machines-admitted', ['The machine is admitted.', '3 machines are waiting']);
    await enter(page, `a[href="${machine}"]`);
    await held('machine-admitted', ['admitted']);
    await enter(page, 'a[href$="?confirm=revoke"]');
    await held('machine-revoke', ['Revoke the access of Ada’s laptop?']);
    await goTo(page, 'machines');
    await enter(page, 'a[href$="?confirm=deny-pending"]');
    await held('machines-deny', ['Deny all waiting machines?']);
    await enter(page, 'button.danger');
    await held('machines-denied', ['All waiting machines are denied.']);
    await enter(page, 'a[href$="/machines/codes"]');
    await held('codes', ['There is no enrolment code.']);
    await fill(page, '#machine-name', 'ci-*');
    await submit(page);
    await held('code', ['It is not shown again.', `vault link ${vault}/v/${slug} --code vec_`]);
}

/** Why does this agent not see the skill? */
async function walkSkills(page, held, member) {
    await goTo(page, 'skills');
    await held('skills', ['greeting', 'release-notes']);
    await choose(page, '#who', member.email);
    await enter(page, 'main form button[type="submit"]');
    await held('skills-of-member', ['How this was decided', 'not shown', 'There is no policy, so members see nothing.']);
    await enter(page, 'th a[href$="/skills/greeting"]');
    await held('skill', ['greeting', 'Findings', 'SKILL.md', 'A made-up skill']);
    await enter(page, 'a[href*="file=noise.bin"]');
    await held('skill-file', ['This file is not text']);
}

/**
 * Walks the pages of the vault `slug`, in which the owner is signed in on `page` and `member` is a member; `token` is an app's, which
 * sends drafts. `seen` holds each page to what every page must keep. Returns the addresses of the pages.
 */
export async function walkConsole({ page, vault, slug, member, token, seen, axePath }) {
    const addresses = [];
    const held = holder(page, seen, await readFile(axePath, 'utf8'), addresses);
    for (const name of ['Ada’s laptop', '"><script>window.ran=1</script>', 'W'.repeat(64), 'מחשב של דנה 👩']) await enrol(vault, slug, name);
    await sendDrafts(vault, slug, token);
    await page.open(`${vault}/console`);
    await held('overview', ['Overview', '4 machines ask for access']);
    await walkMachines(page, held, vault, slug);
    await walkSkills(page, held, member);
    await walkDrafts(page, held);
    await walkReleases(page, held);
    await walkPeople(page, held, member);
    await walkRecords(page, held, slug);
    await walkApps(page, held);
    await page.open(`${vault}/console/absent`);
    await seen(page, 'console-absent', 404, ['This page does not exist']);
    return addresses;
}

/** Walks the pages of the vault `slug`, in which nothing was published. Returns their addresses. */
export async function walkEmpty({ page, vault, slug, seen, axePath }) {
    const addresses = [];
    const held = holder(page, seen, await readFile(axePath, 'utf8'), addresses);
    await page.open(`${vault}/console/${slug}`);
    await walkEmptyVault(page, held, slug);
    return addresses;
}

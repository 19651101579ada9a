// The walk through the owner console, for walk.mjs: by keyboard alone, as a person does who never saw a command line.
import { generateKeyPairSync, sign } from 'node:crypto';
import { readFile } from 'node:fs/promises';

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

/** Presses Tab until the element has the focus: it must be reached by keyboard, and its focus must be seen. */
async function tabTo(page, selector) {
    const wanted = JSON.stringify(selector);
    expect(await page.ask(`document.querySelector(${wanted}) !== null`), `${selector} on ${await page.ask('location.href')}`);
    for (let turn = 0; turn < 200; turn += 1) {
        if (await page.ask(`document.activeElement?.matches(${wanted}) ?? false`)) {
            const outline = await page.ask('getComputedStyle(document.activeElement).outlineStyle');
            expect(outline !== 'none', `a focus that is seen on ${selector}`);
            return;
        }
        await page.press('Tab', 9);
    }
    throw new Error(`${selector} is not reached by keyboard`);
}

/** Goes to the element by keyboard and presses Enter; waits for the next page. */
async function enter(page, selector) {
    await tabTo(page, selector);
    await page.onward(() => page.press('Enter', 13, '\r'));
}

/** Chooses the option with this text by keyboard. */
async function choose(page, selector, text) {
    await tabTo(page, selector);
    for (let turn = 0; turn < 200; turn += 1) {
        if (await page.ask('document.activeElement.selectedOptions[0].text') === text) return;
        await page.press('ArrowDown', 40);
    }
    throw new Error(`${text} cannot be chosen in ${selector}`);
}

/**
 * Walks the pages of the vault `slug`, in which the owner is signed in on `page` and `member` is a member.
 * `seen` holds each page to what every page must keep. Returns the addresses of the pages.
 */
export async function walkConsole({ page, vault, slug, member, seen, axePath }) {
    const source = await readFile(axePath, 'utf8');
    const addresses = [];
    const held = async (name, words) => {
        addresses.push(await page.ask('location.href'));
        const bytes = (await page.ask('document.documentElement.outerHTML')).length;
        await seen(page, `console-${name}`, 200, words, async () => {
            expect(bytes < MOST_BYTES, `a page below ${MOST_BYTES} bytes, not ${bytes}`);
            const found = await axe(page, source);
            expect(found.length === 0, `nothing found by axe, not ${found.join(' | ')}`);
        });
    };
    await enrol(vault, slug, 'Ada’s laptop');
    await enrol(vault, slug, '"><script>window.ran=1</script>');
    await enrol(vault, slug, 'W'.repeat(64));
    await enrol(vault, slug, 'מחשב של דנה 👩');
    await page.open(`${vault}/console`);
    await held('overview', ['Overview', '4 machines ask for access']);

    // --- a machine is admitted ------------------------------------------------------------------
    await enter(page, 'nav[aria-label="Pages of this vault"] a[href$="/machines"]');
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
    await page.open(`${vault}/console/${slug}/machines`);
    await enter(page, 'a[href$="?confirm=deny-pending"]');
    await held('machines-deny', ['Deny all waiting machines?']);
    await enter(page, 'button.danger');
    await held('machines-denied', ['All waiting machines are denied.']);
    await enter(page, 'a[href$="/machines/codes"]');
    await held('codes', ['There is no enrolment code.']);
    await tabTo(page, '#machine-name');
    await page.send('Input.insertText', { text: 'ci-*' });
    await page.onward(() => page.press('Enter', 13, '\r'));
    await held('code', ['It is not shown again.', `vault link ${vault}/v/${slug} --code vec_`]);

    // --- why does this agent not see the skill? -------------------------------------------------
    await enter(page, 'nav[aria-label="Pages of this vault"] a[href$="/skills"]');
    await held('skills', ['greeting', 'release-notes']);
    await choose(page, '#who', member.email);
    await enter(page, 'main form button[type="submit"]');
    await held('skills-of-member', ['How this was decided', 'not shown', 'There is no policy, so members see nothing.']);
    await enter(page, 'th a[href$="/skills/greeting"]');
    await held('skill', ['greeting', 'Findings', 'SKILL.md', 'A made-up skill']);
    await enter(page, 'a[href*="file=noise.bin"]');
    await held('skill-file', ['This file is not text']);

    // --- what a member sees ---------------------------------------------------------------------
    await page.open(`${vault}/console/absent`);
    await seen(page, 'console-absent', 404, ['This page does not exist']);
    return addresses;
}

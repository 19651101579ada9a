// Audits pages with pa11y and Lighthouse, for tests/pages/run --audit: each with the session of the person who is signed in.
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const CATEGORIES = ['accessibility', 'best-practices'];

/** What a program of the folder prints; its exit code is no matter, since findings are one. */
function printed(modules, script, args, environment) {
    return new Promise((done) => {
        const options = { env: { ...process.env, ...environment }, maxBuffer: 64 << 20, timeout: 180_000 };
        execFile(process.execPath, [join(modules, script), ...args], options, (error, out, complaints) => done({ out, complaints, error }));
    });
}

/** Audits each address and prints a line for each; true where something was found. */
export async function audit(program, page, addresses) {
    const modules = process.env.PAGES_AUDIT;
    const { cookies } = await page.send('Network.getCookies', {});
    const headers = { Cookie: cookies.map(({ name, value }) => `${name}=${value}`).join('; ') };
    const folder = await mkdtemp(join(tmpdir(), 'vault-audit-'));
    const sandbox = process.getuid() === 0 ? ['--no-sandbox'] : [];
    let found = false;
    const settings = join(folder, 'pa11y.json');
    await writeFile(settings, JSON.stringify({ headers, standard: 'WCAG2AA', chromeLaunchConfig: { executablePath: program, args: sandbox } }));
    const secret = join(folder, 'headers.json');
    await writeFile(secret, JSON.stringify(headers));
    try {
        for (const address of new Set(addresses)) {
            const pa11y = await printed(modules, 'pa11y/bin/pa11y.js', ['--config', settings, '--reporter', 'json', address]);
            const issues = JSON.parse(pa11y.out || 'null');
            const lighthouse = await printed(modules, 'lighthouse/cli/index.js', [
                address, `--extra-headers=${secret}`, `--only-categories=${CATEGORIES.join(',')}`, '--output=json', '--quiet',
                `--chrome-flags=--headless=new ${sandbox.join(' ')}`,
            ], { CHROME_PATH: program });
            const report = JSON.parse(lighthouse.out || 'null');
            const scores = CATEGORIES.map((name) => Math.round(100 * (report?.categories[name].score ?? Number.NaN)));
            const wrong = Object.values(report?.audits ?? {}).filter((one) => one.score !== null && one.score < 1).map((one) => one.id);
            const good = issues?.length === 0 && scores.every((score) => score === 100);
            found ||= !good;
            console.log(`${good ? 'ok    ' : 'failed'}  audit ${address}: pa11y ${issues?.length ?? pa11y.complaints}, Lighthouse ${scores.join(' and ')} ${wrong.join(' ')}`);
            for (const issue of issues ?? []) console.log(`        ${issue.code} ${issue.selector}: ${issue.message}`);
            if (!report) console.log(`        ${lighthouse.complaints.slice(-400)}`);
        }
    } finally {
        await rm(folder, { recursive: true });
    }
    return found;
}

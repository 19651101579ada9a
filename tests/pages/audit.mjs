// Audits pages with pa11y and Lighthouse, for tests/pages/run --audit: in one browser, with the session of the
// person who is signed in.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { expect } from './client.mjs';

const CATEGORIES = ['accessibility', 'best-practices'];
const PHONE = { width: 390, height: 844, isMobile: true };
const DESK = { width: 1280, height: 860, isMobile: false };
const LOOKS = [[PHONE, 'light'], [PHONE, 'dark'], [DESK, 'light'], [DESK, 'dark']];
/** Milliseconds that an audit may take. */
const PATIENCE = 60_000;

/** Parameters of an address that tell what a form before has done. */
const OUTCOME = ['done', 'refused'];

/**
 * The addresses that still have a page: without what a form has done, and none of what is gone by now. Says
 * which ones are left out.
 */
async function standing(addresses, cookie) {
    const found = new Set();
    for (const address of addresses) {
        const url = new URL(address);
        for (const name of OUTCOME) url.searchParams.delete(name);
        if (found.has(url.href)) continue;
        const response = await fetch(url, { headers: { cookie }, redirect: 'manual' });
        const { status } = response;
        expect(!(await response.text()).includes('/oauth/login"'), `a person who is signed in, at ${url}`);
        if (status === 200) found.add(url.href);
        else console.log(`        not audited, since it has no page any more (${status}): ${url.href}`);
    }
    return [...found];
}

/** What pa11y finds on a page in a size and scheme, a line for each. */
async function runPa11y(pa11y, browser, tab, address, [size, scheme]) {
    await tab.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await tab.setViewport(size);
    await tab.goto(address);
    const options = { browser, page: tab, ignoreUrl: true, viewport: size, standard: 'WCAG2AA', timeout: PATIENCE };
    const { issues } = await pa11y(address, options);
    return issues.map(({ code, selector, message }) => `pa11y ${size.width} ${scheme}: ${code} ${selector}: ${message}`);
}

/** What Lighthouse finds on a page in a size and scheme, a line for each category below 100. */
async function runLighthouse(lighthouse, tab, address, [size, scheme]) {
    await tab.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    const { lhr } = await lighthouse(address, {
        onlyCategories: CATEGORIES, logLevel: 'error', output: 'json', formFactor: size.isMobile ? 'mobile' : 'desktop',
        screenEmulation: { width: size.width, height: size.height, mobile: size.isMobile, deviceScaleFactor: 1 },
        // The time of a page is not what is audited: nothing waits for it. Other methods wait for five seconds twice.
        throttlingMethod: 'simulate', pauseAfterFcpMs: 0, pauseAfterLoadMs: 0, networkQuietThresholdMs: 100, cpuQuietThresholdMs: 100,
        maxWaitForLoad: PATIENCE, disableStorageReset: true, disableFullPageScreenshot: true,
    }, undefined, tab);
    const look = `Lighthouse ${size.width} ${scheme}`;
    if (lhr.runtimeError) return [`${look}: ${lhr.runtimeError.message}`];
    const below = CATEGORIES.filter((name) => lhr.categories[name].score !== 1);
    return below.map((name) => {
        const scored = lhr.categories[name].auditRefs.filter(({ weight }) => weight > 0).map(({ id }) => lhr.audits[id]);
        const wrong = scored.filter(({ score }) => score !== null && score < 1);
        const items = wrong.map(({ id, details }) => `${id} ${JSON.stringify(details?.items ?? []).slice(0, 600)}`);
        return `${look}: ${name} ${lhr.categories[name].score}: ${items.join('; ')}`;
    });
}

/** Audits each address and prints a line for each; true where something was found. */
export async function audit(program, page, addresses) {
    const load = createRequire(join(process.env.PAGES_AUDIT, 'here.js'));
    const [pa11y, puppeteer] = [load('pa11y'), load('puppeteer')];
    const { default: lighthouse } = await import(pathToFileURL(load.resolve('lighthouse')));
    const { cookies } = await page.send('Network.getCookies', {});
    const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
    const browser = await puppeteer.launch({
        executablePath: program, args: ['--disable-gpu', '--disable-dev-shm-usage', ...(process.getuid() === 0 ? ['--no-sandbox'] : [])],
    });
    let found = false;
    try {
        await browser.setCookie(...cookies.map(({ name, value, domain, path, httpOnly, sameSite }) => ({ name, value, domain, path, httpOnly, sameSite })));
        for (const address of await standing(addresses, cookie)) {
            const tab = await browser.newPage();
            const findings = [];
            try {
                for (const look of LOOKS) {
                    findings.push(...await runPa11y(pa11y, browser, tab, address, look));
                    findings.push(...await runLighthouse(lighthouse, tab, address, look));
                }
            } catch (error) {
                findings.push(`no audit: ${error.stack}`);
            }
            await tab.close();
            found ||= findings.length > 0;
            console.log(`${findings.length === 0 ? 'ok    ' : 'failed'}  audit ${address}`);
            for (const finding of findings) console.log(`        ${finding}`);
        }
    } finally {
        await browser.close();
    }
    return found;
}

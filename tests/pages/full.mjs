// Opens every page of the console over vaults of full size, for tests/pages/run --full.
//
//   node full.mjs CHROMIUM PROFILE VAULT AXE PROGRAM HOMES START PROCESS [PICTURES]
//
// VAULT is the service's address, PROGRAM `vault`, HOMES a folder for the homes of machines, START a script
// that starts the service and PROCESS its process. FULL_SKILLS and its like make the vault smaller, and with
// FULL_SKIP_LOOKS the pages are measured and audited, and not looked at. A vault that is there from another run, as
// HOMES/seeded.json says, is used again.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { consent } from '../clients/person.mjs';
import { audit } from './audit.mjs';
import { LONG, MANY, name, releases } from './catalogue.mjs';
import { Chromium } from './chromium.mjs';
import { expect } from './client.mjs';
import { Service } from './clock.mjs';
import { holder } from './console.mjs';
import { App, HOSTILE, drafts, machines, people, send, each } from './crowd.mjs';
import { Pages } from './held.mjs';
import { programIn, reviewed } from './program.mjs';
import { publishers } from './publishers.mjs';

const [program, profile, vault, axePath, binary, homes, start, running, pictures] = process.argv.slice(2);
const owner = { email: process.env.VAULT_ADMIN_EMAIL, password: process.env.VAULT_ADMIN_PASSWORD };
const SLUG = 'full';
/** The vault that the service signs itself, with as many skills. */
const OWN = 'default';
const number = (variable, usual) => Number(process.env[variable] ?? usual);
const SIZE = {
    skills: number('FULL_SKILLS', 10_000), machines: number('FULL_MACHINES', 1_000),
    drafts: number('FULL_DRAFTS', 500), people: number('FULL_PEOPLE', 100),
};
/** Most milliseconds of the service for a page, and most bytes. */
const MOST_MILLISECONDS = 50;
const MOST_BYTES = 100 * 1024;

let begun = Date.now();
/** Prints how long a step took. */
function step(words) {
    console.log(`        ${words}: ${((Date.now() - begun) / 1000).toFixed(1)} s`);
    begun = Date.now();
}

/** Makes the vault. Answers what is worth a page. */
async function seed() {
    const app = await App.register(vault, HOSTILE[0]);
    const operator = await app.token(owner, 'default', ['read', 'write', 'operator']);
    await send(`${vault}/admin/operator/namespaces`, 'POST', { slug: SLUG, owner: owner.email }, operator, 201);
    const token = await app.token(owner, SLUG);
    const members = await people({ app, slug: SLUG, token, operator, count: SIZE.people });
    step(`${SIZE.people} people`);
    // Before there are skills: each draft is compared with the release.
    const few = Math.min(SIZE.drafts, 20);
    await drafts({ vault, slug: SLUG, token, members, count: SIZE.drafts - few });
    step(`${SIZE.drafts - few} drafts that wait, and 40 that were decided`);
    const held = await machines({ vault, slug: SLUG, token, count: SIZE.machines });
    step(`${SIZE.machines} machines`);
    const run = programIn(binary, homes);
    const signsIn = async (url) => {
        const back = await consent(new URL(url), ['read', 'write'], owner.email, owner.password);
        await fetch(back);
    };
    await run('owner', ['cloud', 'connect', `${vault}/v/${SLUG}`, '--no-browser'], { signsIn });
    await releases({
        run, home: join(homes, 'owner'), count: SIZE.skills, emails: members.map(({ email }) => email),
        published: async (release) => {
            step(`release ${release}`);
            const some = held.active.filter((_, at) => at % 8 === release);
            await each(some, 4, (machine) => machine.fetchCatalog());
        },
    });
    const fresh = await app.token(owner, SLUG);
    const late = await drafts({
        vault, slug: SLUG, token: fresh, members, count: few, from: 1000, decided: 0, ofSkill: (at) => name(at % 1000 + 10),
    });
    step(`${few} more drafts`);
    for (const title of HOSTILE.slice(0, 6)) {
        const other = await App.register(vault, title);
        await other.token(owner, SLUG);
    }
    const accepted = late.propose.slice(0, 2);
    for (const id of accepted) await reviewed(run, 'owner', ['drafts', 'accept', id]);
    step(`${accepted.length} drafts accepted`);
    const own = await app.token(owner, OWN);
    const ofOwn = { vault, slug: OWN, token: own, members: [{ token: own }], count: 4, from: 1000, decided: 0 };
    const ownDrafts = await drafts({ ...ofOwn, ofSkill: (at) => name(at % 1000 + 10) });
    step(`drafts of ${OWN}`);
    const publishing = await publishers({ run, homes, vault, slug: SLUG, token: fresh, members });
    step('a second publisher, and proposed releases');
    const ids = (some) => some.map(({ id }) => id);
    const byState = Object.fromEntries(Object.entries(held).map(([state, some]) => [state, ids(some)]));
    return { ...byState, ...publishing, accepted, own: Object.values(ownDrafts).flat() };
}

/** The addresses of links of a page that the expression fits, as they are written in it. */
function links(text, expression) {
    const found = [...text.matchAll(/href="([^"]*)"/g)].map(([, href]) => href.replaceAll('&amp;', '&').replaceAll('&#38;', '&'));
    return [...new Set(found)].filter((href) => expression.test(href));
}

/** Every page of the console worth opening: its name, its path and words on it. */
async function pages(service, cookie, held) {
    const home = `/console/${SLUG}`;
    const found = [];
    const add = (title, path, ...words) => found.push({ title, path: path.startsWith('/') ? path : `${home}/${path}`, words });
    const text = async (path) => (await service.ask(`${home}/${path}`, cookie)).text;
    /** The page behind the list, which `next` on it leads to. */
    const next = async (path) => {
        const [href] = links(await text(path), /[?&](after|before|page)=/).slice(-1);
        expect(href, `a next page of ${path}`);
        return href;
    };
    add('choose', '/console', SLUG, 'default');
    add('overview', home, 'Overview', 'machines ask for access', 'drafts of skills');
    // Those of the publishers come on top.
    const all = `of ${SIZE.machines + 5}`;
    add('machines', 'machines', all, 'waiting');
    add('machines-second', 'machines?page=2');
    add('machines-last', 'machines?page=9999', all);
    add('machines-search', 'machines?search=machine-0', 'machine-0');
    add('machines-search-hostile', `machines?search=${encodeURIComponent(HOSTILE[0])}`);
    add('machines-search-nothing', 'machines?search=nothing-is-called-this', 'No machine matches');
    for (const state of ['pending', 'active', 'behind', 'revoked']) add(`machines-${state}`, `machines?status=${state}`);
    add('machines-deny', 'machines?confirm=deny-pending', 'Deny all waiting machines?');
    add('codes', 'machines/codes', 'Enrolment codes');
    for (const [at, machine] of held.waiting.entries()) add(`machine-waiting-${at}`, `machines/${machine}`, 'waiting for your decision');
    add('machine-admitted', `machines/${held.active[0]}`, 'admitted');
    add('machine-behind', `machines/${held.active.find((_, at) => at % 8 === 2)}`, 'release 2');
    add('machine-revoke', `machines/${held.active[0]}?confirm=revoke`, 'Revoke the access');
    add('machine-revoked', `machines/${held.revoked[0]}`, 'no access');
    add('machine-denied', `machines/${held.denied[1]}`, 'no access');
    add('releases', 'releases', 'Timeline', 'Release 7');
    for (const one of [1, 2, 3, 7]) add(`release-${one}`, `releases/${one}`, `Release ${one}`);
    add('release-compared', 'releases/1?to=7', 'Changes from release 1 to release 7');
    add('release-skill', `releases/2?to=1&skill=${name(5)}`, `Files of ${name(5)}`);
    add('release-skill-long', `releases/3?to=2&skill=${name(LONG)}`, `Files of ${name(LONG)}`);
    add('release-skill-many', `releases/3?to=2&skill=${name(MANY)}`, `Files of ${name(MANY)}`);
    await skillPages(add, text);
    await draftPages(add, text, next);
    add('draft-accepted', `drafts/${held.accepted[0]}`, 'Accepted');
    add('draft-request', `drafts/${held.requests[0]}`, 'Request to publish');
    add('draft-outdated', `drafts/${held.outdated}`, 'Outdated');
    add('draft-proposal', `drafts/${held.proposal}`, 'Proposed release');
    add('draft-proposal-skill', `drafts/${held.proposal}?skill=${name(5)}`, `Files of ${name(5)}`);
    add('people', 'people', 'Invite a person', 'Keys');
    add('people-second', await next('people'));
    for (const [at, href] of links(await text('people'), /\/people\/usr_/).slice(0, 9).entries()) add(`person-${at}`, href);
    add('apps', 'apps', 'End access');
    add('log', 'audit', 'Newest first');
    add('log-older', await next('audit'));
    add('log-action', 'audit?action=draft', 'draft.create');
    add('log-target', `audit?target=${held.revoked[0]}`);
    add('log-actor', `audit?actor=${encodeURIComponent(HOSTILE[0])}`);
    add('log-days', 'audit?from=2000-01-01&until=2100-01-01');
    add('log-nothing', 'audit?action=device&target=nothing-is-called-this', 'Show everything');
    add('vault', 'namespace', `The vault ${SLUG}`, 'Storage');
    ownPages(add, held);
    return found;
}

/** Pages of the vault that the service signs, which reads skills from its library and not from a release. */
function ownPages(add, { own }) {
    const home = `/console/${OWN}`;
    add('own-overview', home, 'Overview');
    add('own-releases', `${home}/releases`, 'Release 1');
    add('own-release', `${home}/releases/1`, 'Release 1');
    add('own-skills', `${home}/skills`, 'Skills of the current release');
    add('own-skills-last', `${home}/skills?page=99999`);
    add('own-skills-search', `${home}/skills?search=invoice`, 'invoice');
    add('own-skills-machine', `${home}/skills?who=machine`, 'How this was decided');
    for (const skill of [9, LONG, MANY]) add(`own-skill-${skill}`, `${home}/skills/${name(skill)}`, name(skill), 'Findings');
    for (const [at, id] of own.entries()) add(`own-draft-${at}`, `${home}/drafts/${id}`, 'Waiting');
    add('own-vault', `${home}/namespace`, `The vault ${OWN}`);
}

/** Pages about skills, as everybody sees them. */
async function skillPages(add, text) {
    const list = await text('skills');
    const members = [...list.matchAll(/value="(usr_[^"]*)"/g)].map(([, id]) => id);
    const [app] = [...list.matchAll(/value="(cli_[^"]*)"/g)].map(([, id]) => id);
    expect(members.length > 1 && app, 'people and an app to choose');
    add('skills', 'skills', 'Skills of the current release');
    add('skills-second', 'skills?page=2');
    add('skills-last', 'skills?page=99999');
    add('skills-search', 'skills?search=invoice', 'invoice');
    add('skills-search-nothing', 'skills?search=nothing-is-called-this', 'No skill matches');
    add('skills-machine', 'skills?who=machine', 'How this was decided');
    const member = members.at(-1);
    add('skills-member', `skills?who=${member}`, 'How this was decided', 'not shown');
    add('skills-member-hidden', `skills?who=${member}&show=hidden`);
    add('skills-member-question', `skills?who=${member}&ask=${encodeURIComponent('review the invoice of a customer')}&show=shown`);
    add('skills-member-everything', `skills?who=${member}&app=${app}&ask=report&search=report&show=hidden`);
    for (const skill of [0, 3, 7, 9]) add(`skill-${skill}`, `skills/${name(skill)}`, name(skill), 'Findings');
    add('skill-long', `skills/${name(LONG)}`, name(LONG));
    add('skill-many', `skills/${name(MANY)}`, name(MANY));
    add('skill-many-last', `skills/${name(MANY)}?page=99`, name(MANY));
    add('skill-file', `skills/${name(9)}?file=references%2Fguide.md`, name(9));
}

/** Pages about drafts, of each state and kind. */
async function draftPages(add, text, next) {
    add('drafts', 'drafts', 'Drafts');
    add('drafts-second', await next('drafts'));
    for (const state of ['accepted', 'declined', 'withdrawn', 'outdated', 'all']) add(`drafts-${state}`, `drafts?state=${state}`);
    const listed = await text('drafts?state=all');
    const some = links(listed, /\/drafts\/[0-9A-Z]{26}$/);
    for (const [at, href] of some.slice(0, 12).entries()) add(`draft-${at}`, href);
    // The newest ones are about skills that the vault has.
    let path = 'drafts';
    for (let turn = 0; turn < 40; turn += 1) {
        const href = links(await text(path), /[?&]after=/).at(-1);
        if (!href) break;
        path = href.slice(`/console/${SLUG}/`.length);
    }
    for (const [at, href] of links(await text(path), /\/drafts\/[0-9A-Z]{26}$/).slice(-9).entries()) add(`draft-late-${at}`, href);
}

/** Whether it is the fourth page or a later one of the same kind: an audit takes long, and finds nothing new there. */
const isRepeated = (title) => Number(/-(\d+)$/.exec(title)?.[1] ?? 0) > 2;

/** Holds each page to its size and time; prints a line for each. */
async function measure(service, cookie, found) {
    let failed = false;
    const cold = new Map();
    for (const { title, path } of found) cold.set(title, await service.cold(path, cookie));
    for (const { title, path } of found) {
        const { median, bytes } = await service.warm(path, cookie);
        const good = median <= MOST_MILLISECONDS && bytes < MOST_BYTES;
        failed ||= !good;
        const times = `${median.toFixed(1).padStart(7)} ms, first ${cold.get(title).toFixed(0).padStart(5)} ms`;
        console.log(`${good ? 'ok    ' : 'failed'}  time ${title.padEnd(26)} ${times}, ${(bytes / 1024).toFixed(1).padStart(6)} KiB`);
    }
    return failed;
}

const chromium = await Chromium.start(program, profile);
const service = new Service(vault, start, Number(running));
// The service that this process has started ends with it.
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { service.end(); process.exit(1); });
const looks = new Pages(pictures);
let failed = false;
try {
    const record = join(homes, 'seeded.json');
    let seeded = await readFile(record, 'utf8').then(JSON.parse, () => null);
    if (!seeded) {
        seeded = await seed();
        await writeFile(record, JSON.stringify(seeded));
        step('the rest of the vault');
    }
    const page = await chromium.page();
    await page.open(`${vault}/console/${SLUG}`);
    await page.type('#email', owner.email);
    await page.type('#password', owner.password);
    await page.onward(() => page.click('main button.wide'));
    const { cookies } = await page.send('Network.getCookies', {});
    const cookie = cookies.map((one) => `${one.name}=${one.value}`).join('; ');
    const found = await pages(service, cookie, seeded);
    if (!process.env.FULL_SKIP_LOOKS) {
        const held = await holder(page, looks.seen, axePath, []);
        for (const { title, path, words } of found) {
            await page.open(new URL(path, vault).href);
            await held(`full-${title}`, words);
            if (await page.ask('window.ran') !== undefined) {
                failed = true;
                console.log(`failed  full-${title}: a script of the data has run`);
            }
        }
        step(`${found.length} pages in the browser`);
    }
    failed = await measure(service, cookie, found) || failed;
    step('the clock');
    if (process.env.PAGES_AUDIT) {
        const audited = found.filter(({ title }) => !isRepeated(title)).map(({ path }) => new URL(path, vault).href);
        failed = await audit(program, page, audited) || failed;
        step(`${audited.length} pages audited`);
    }
} catch (error) {
    failed = true;
    console.log(`failed  ${error.stack}`);
} finally {
    await chromium.end();
    service.end();
}
process.exit(failed || looks.failed ? 1 : 0);

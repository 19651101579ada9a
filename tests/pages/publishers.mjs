// Publishers of a vault of full size, for tests/pages/run --full: one beside the owner, requests of others, and
// releases that need two signatures.
import { join } from 'node:path';

import { consent } from '../clients/person.mjs';
import { name, write } from './catalogue.mjs';
import { HOSTILE, PASSWORD, send } from './crowd.mjs';
import { reviewed } from './program.mjs';

/** What a command answers as JSON, beside what it says to a person. */
async function json(run, machine, args, options) {
    const printed = await run(machine, [...args, '--json', '--yes'], options);
    return JSON.parse(printed.split('\n').find((line) => line.startsWith('{'))).data;
}

/**
 * Makes a second publisher and lets releases need both. One proposal is outdated in the end and one waits, beside
 * requests of others to publish. Answers the ids.
 */
export async function publishers({ run, homes, vault, slug, token, members }) {
    const owner = (...args) => json(run, 'owner', args);
    const key = join(homes, 'recovery.json');
    await owner('key', 'recovery', 'create', key);
    await owner('sync', '--cloud');
    const { fingerprint } = await owner('key', 'show');
    const { code } = await send(`${vault}/admin/vaults/${slug}/enrolment-codes`, 'POST', { uses: 5 }, token, 201);
    /** The key that a member asks to publish with. */
    const request = async ({ email }, title) => {
        const home = `publisher-${email.split('@')[0]}`;
        await json(run, home, ['link', `${vault}/v/${slug}`, '--expect-key', fingerprint, '--code', code]);
        const signsIn = async (url) => fetch(await consent(new URL(url), ['read', 'write'], email, PASSWORD));
        const args = ['publishers', 'request', `${vault}/v/${slug}`, '--name', title, '--no-browser'];
        return { home, ...await json(run, home, args, { signsIn }) };
    };
    const [first, ...others] = members;
    const second = await request(first, 'מחשב של דנה 👩');
    const requests = [];
    for (const [at, member] of others.slice(0, 4).entries()) requests.push(await request(member, HOSTILE[at]));
    await owner('publishers', 'add', second.fingerprint, '--root-key', key);
    await reviewed(run, second.home, ['sync', '--cloud']);
    await owner('publishers', 'threshold', '2', '--root-key', key);
    /** Changes skills and proposes a release with them. */
    const propose = async (machine, numbers, edition) => {
        const folder = join(homes, machine, 'work');
        for (const number of numbers) await write(folder, number, edition);
        await json(run, machine, ['add', ...numbers.map((number) => join(folder, name(number))), '--replace']);
        return (await json(run, machine, ['sync', '--cloud'])).proposed;
    };
    const numbers = Array.from({ length: 30 }, (_, at) => at + 3);
    const signed = await propose('owner', numbers.slice(0, 10), 20);
    await reviewed(run, second.home, ['release', 'sign', signed]);
    const outdated = await propose(second.home, [40], 21);
    // Another list of keys ends what was proposed under the one before.
    await owner('publishers', 'add', requests.pop().fingerprint, '--root-key', key);
    const proposal = await propose('owner', numbers, 22);
    return { requests: requests.map(({ draft }) => draft), outdated, proposal };
}

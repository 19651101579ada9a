// The skills and releases of a vault of full size, for tests/pages/run --full: written as folders, then
// added and published with the program.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { HOSTILE, each } from './crowd.mjs';

const WORDS = `review checks the change for errors and explains what to correct before it is merged branch
    commit table column query index service request answer header test fixture module function caller reader
    writer file folder report summary release note draft page section example deploy rollback monitor alert
    latency budget owner team customer invoice contract schema migration backup restore queue worker`.split(/\s+/);

/** The same words for the same number in every run. */
function text(seed, count) {
    let state = seed + 1;
    const words = [];
    for (let at = 0; at < count; at += 1) {
        state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
        words.push(WORDS[(state >> 8) % WORDS.length]);
    }
    return words.join(' ').replaceAll(/((?:\S+ ){14}\S+) /g, '$1\n');
}

/** The name of a skill by its number. */
export const name = (number) => (number === 0 ? 'w'.repeat(64) : `skill-${String(number).padStart(5, '0')}`);

/** The skill whose text is as long as it may be, and the one with the most files. */
export const LONG = 1;
export const MANY = 2;

/** Writes a skill below `folder`; another `edition` has another text. */
export async function write(folder, number, edition) {
    const home = join(folder, name(number));
    await mkdir(join(home, 'references'), { recursive: true });
    const about = HOSTILE[number] ?? '';
    const description = `${about} ${text(number, 24).replaceAll('\n', ' ')}.`.trim();
    const front = `---\nname: ${name(number)}\ndescription: ${JSON.stringify(description)}\ntags: [${WORDS[number % 40]}, test]\n---\n`;
    const lines = number === LONG ? Array.from({ length: 4000 }, (_, line) => `<b>&"' line ${line} ${about}`).join('\n') : text(number, 220);
    await writeFile(join(home, 'SKILL.md'), `${front}# Edition ${edition}\n\n${lines}\n`);
    await writeFile(join(home, 'references/guide.md'), `${text(number + 20_000, 60)}\n`);
    if (number === MANY) {
        for (let file = 0; file < 400; file += 1) {
            await writeFile(join(home, `references/file-${'a'.repeat(60)}-${file}.md`), `File ${file}, edition ${edition}.\n`);
        }
    }
}

/** A policy with as many groups and rules as a large team has. */
function policy(emails) {
    const groups = WORDS.slice(0, 40).map((word, at) => `[groups.g${at}]\nskills = ["tag:${word}"]\naliases = ["${word}"]\n`);
    const rules = WORDS.slice(0, 20).map((word, at) => `[[rules]]\nwhen = "(?i)\\\\b${word}s?\\\\b"\nadd_groups = ["g${at}"]\n`);
    const callers = emails.map((email, at) => `[callers."${email}"]\nprofile = "p${at % 4}"\n`);
    const profiles = [0, 1, 2, 3].map((at) => `[profiles.p${at}]\ngroups = ["g${20 + at}", "g${30 + at}"]\n`);
    return [...profiles, ...groups, ...callers, ...rules].join('\n');
}

/**
 * Publishes `count` skills from the machine `owner`, connected to its vault already, then some releases
 * that change, add and remove skills. `published` is called after each release with its number.
 */
export async function releases({ run, home, count, emails, published }) {
    const folder = join(home, 'work');
    const numbers = Array.from({ length: count }, (_, number) => number);
    await each(numbers, 16, (number) => write(folder, number, 1));
    const paths = (some) => some.map((number) => join(folder, name(number)));
    await run('owner', ['add', ...paths(numbers), '--yes']);
    await writeFile(join(home, '.vault/policy.toml'), policy(emails));
    await run('owner', ['sync', '--cloud', '--yes']);
    await published(1);
    const steps = [numbers.slice(0, 400), [LONG, MANY], ...[3, 4, 5, 6].map((at) => numbers.slice(at * 100, at * 100 + 20))];
    for (const [at, changed] of steps.entries()) {
        await each(changed, 16, (number) => write(folder, number, at + 2));
        await run('owner', ['add', ...paths(changed), '--replace', '--yes']);
        await run('owner', ['remove', ...numbers.slice(-20 * (at + 1), -20 * at || undefined).map(name), '--yes']);
        await run('owner', ['sync', '--cloud', '--yes']);
        await published(at + 2);
    }
}


// The program `vault` in homes of its own, for the walks.
import { spawn } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';

import { expect } from './client.mjs';

/**
 * Runs the program in the home of a machine, a folder below `homes`, and answers what it prints. `signsIn`
 * opens the address that it prints.
 */
export function programIn(vault, homes) {
    return async function run(machine, args, { signsIn, status = 0 } = {}) {
        const home = join(homes, machine);
        await mkdir(home, { recursive: true });
        const child = spawn(vault, args, {
            cwd: home,
            env: { HOME: home, PATH: '/usr/local/bin:/usr/bin:/bin', LC_ALL: 'C.UTF-8', NO_COLOR: '1' },
            stdio: [signsIn ? 'pipe' : 'ignore', 'pipe', 'pipe'],
        });
        let text = '';
        let opened;
        const read = (part) => {
            text += part;
            const printed = /^\s*(http\S+\/oauth\/authorize\?\S+)\s*$/m.exec(text);
            if (signsIn && printed && !opened) opened = signsIn(printed[1]).finally(() => child.stdin.end());
        };
        child.stdout.on('data', read);
        child.stderr.on('data', read);
        const code = await new Promise((ended) => child.on('close', ended));
        await opened;
        expect(code === status, `exit ${status} of vault ${args.slice(0, 6).join(' ')}, not ${code}: ${text.slice(0, 2000)}`);
        return text;
    };
}

/**
 * Runs a command that shows what somebody else made, and runs it again with the hash of what it showed, as a person
 * does who has read it. Answers the data.
 */
export async function reviewed(run, machine, args) {
    const printed = async (more, options) => {
        const text = await run(machine, [...args, ...more, '--json'], options);
        return JSON.parse(text.split('\n').find((line) => line.startsWith('{'))).data;
    };
    const { flag, sha256 } = await printed([], { status: 3 });
    return printed([flag, sha256]);
}

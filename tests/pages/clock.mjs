// How long the service takes for a page, and how large the page is, for tests/pages/run --full.
import { spawn } from 'node:child_process';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { expect } from './client.mjs';

/** Requests before the clock counts, and those whose median counts. */
const WARM_UP = 3;
const COUNTED = 15;

/** The service, of which this process can make a new one over the same data. */
export class Service {
    /** `start` is a script that becomes the service, `running` the process that runs now. */
    constructor(url, start, running) {
        Object.assign(this, { url, start, running, agent: new http.Agent({ keepAlive: true, maxSockets: 1 }) });
    }

    /** One request over the connection that stands: its status, its bytes and the milliseconds to the last of them. */
    ask(path, cookie) {
        const begun = performance.now();
        return new Promise((done, failed) => {
            const asked = http.get(new URL(path, this.url), { agent: this.agent, headers: { cookie } }, (response) => {
                const parts = [];
                response.on('data', (part) => parts.push(part));
                response.on('error', failed);
                response.on('end', () => {
                    const milliseconds = performance.now() - begun;
                    const body = Buffer.concat(parts);
                    done({ status: response.statusCode, bytes: body.length, text: body.toString(), milliseconds });
                });
            });
            asked.on('error', failed);
        });
    }

    /** Ends the process, and starts another one over the same data. */
    async restart() {
        this.agent.destroy();
        this.end();
        while (this.isRunning()) await sleep(20);
        this.child = spawn('bash', [this.start], { stdio: 'ignore' });
        this.running = this.child.pid;
        for (let turn = 0; turn < 600; turn += 1) {
            const there = await this.ask('/healthz', '').catch(() => null);
            if (there?.status === 200) return;
            await sleep(50);
        }
        throw new Error('the service did not start again');
    }

    isRunning() {
        // A child that has ended is there until its end is taken note of.
        if (this.child) return this.child.exitCode === null && this.child.signalCode === null;
        try {
            process.kill(this.running, 0);
            return true;
        } catch {
            return false;
        }
    }

    end() {
        if (this.isRunning()) process.kill(this.running, 'SIGTERM');
    }

    /** The median of several requests for a page, in milliseconds, and its bytes. */
    async warm(path, cookie) {
        for (let turn = 0; turn < WARM_UP; turn += 1) await this.ask(path, cookie);
        const asked = [];
        for (let turn = 0; turn < COUNTED; turn += 1) asked.push(await this.ask(path, cookie));
        for (const { status } of asked) expect(status === 200, `200 of ${path}, not ${status}`);
        const times = asked.map((one) => one.milliseconds).sort((one, other) => one - other);
        return { median: times[COUNTED >> 1], bytes: asked[0].bytes };
    }

    /** The time of a page that is the first which a new process answers. */
    async cold(path, cookie) {
        await this.restart();
        const { status, milliseconds } = await this.ask(path, cookie);
        expect(status === 200, `200 of ${path}, not ${status}`);
        return milliseconds;
    }
}

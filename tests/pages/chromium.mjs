// A headless Chromium, spoken to by its own protocol: pages, keys, clicks, pictures, and everything that it complains about.
import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const PATIENCE = 30_000;

/** Rejects with these words when `promise` takes too long. */
function inTime(promise, words) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`${words}: not in time`)), PATIENCE);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export class Chromium {
    /** Starts one with a profile of its own, which resolves no name but those given in `names`, and those as this machine. */
    static async start(program, profile, { names = [] } = {}) {
        const child = spawn(program, [
            '--headless=new', '--remote-debugging-port=0', `--user-data-dir=${profile}`, '--no-first-run', '--disable-gpu',
            '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
            '--disable-features=PasswordLeakDetection,MediaRouter', `--host-resolver-rules=${[...names.map((name) => `MAP ${name} 127.0.0.1`), 'MAP * ~NOTFOUND', 'EXCLUDE 127.0.0.1'].join(' , ')}`,
            // It refuses its sandbox to root, who runs tests in containers; it opens nothing but our own pages.
            ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
            'about:blank',
        ], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, HOME: profile, XDG_CONFIG_HOME: profile, XDG_CACHE_HOME: profile } });
        let said = '';
        const address = await inTime(new Promise((found, failed) => {
            child.stderr.on('data', (part) => {
                said += part;
                const line = /DevTools listening on (ws:\S+)/.exec(said);
                if (line) found(line[1]);
            });
            child.on('error', failed);
            child.on('exit', () => failed(new Error(`Chromium ended: ${said.slice(-500)}`)));
        }), 'Chromium');
        const socket = new WebSocket(address);
        await inTime(new Promise((open, failed) => {
            socket.onopen = open;
            socket.onerror = () => failed(new Error('Chromium does not take the connection'));
        }), 'its connection');
        return new Chromium(child, socket);
    }

    constructor(child, socket) {
        Object.assign(this, { child, socket, last: 0, waiting: new Map(), pages: new Map() });
        socket.onmessage = ({ data }) => {
            const message = JSON.parse(data);
            if (message.id) {
                const { done, failed } = this.waiting.get(message.id);
                this.waiting.delete(message.id);
                if (message.error) failed(new Error(message.error.message));
                else done(message.result);
            } else {
                this.pages.get(message.sessionId)?.heard(message.method, message.params);
            }
        };
    }

    send(method, params = {}, sessionId) {
        const id = (this.last += 1);
        const answer = new Promise((done, failed) => this.waiting.set(id, { done, failed }));
        this.socket.send(JSON.stringify({ id, method, params, sessionId }));
        return inTime(answer, method);
    }

    /** A page of a person of its own: nobody else's cookies. */
    async page() {
        const { browserContextId } = await this.send('Target.createBrowserContext');
        const { targetId } = await this.send('Target.createTarget', { url: 'about:blank', browserContextId });
        const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
        const page = new Page(this, sessionId);
        this.pages.set(sessionId, page);
        for (const domain of ['Page', 'Runtime', 'Log', 'Audits', 'Network']) await page.send(`${domain}.enable`);
        return page;
    }

    async end() {
        const ended = new Promise((done) => this.child.on('exit', done));
        await this.send('Browser.close').catch(() => this.child.kill());
        await inTime(ended, 'the end of Chromium').catch(() => this.child.kill('SIGKILL'));
    }
}

class Page {
    constructor(browser, sessionId) {
        Object.assign(this, { browser, sessionId, complaints: [], loads: 0, loaded: [], draws: true });
    }

    /** Runs no script of a page from now on; what `ask` evaluates still runs, without timers and frames. */
    async withoutScripts() {
        this.draws = false;
        await this.send('Emulation.setScriptExecutionDisabled', { value: true });
    }

    send(method, params) {
        return this.browser.send(method, params, this.sessionId);
    }

    heard(method, params) {
        if (method === 'Page.loadEventFired') {
            this.loads += 1;
            this.loaded.splice(0).forEach((done) => done());
        }
        if (method === 'Network.responseReceived' && params.type === 'Document') this.response = params.response;
        const says = {
            'Log.entryAdded': () => `${params.entry.source}: ${params.entry.text}`,
            'Runtime.consoleAPICalled': () => `console: ${params.args.map((one) => one.value ?? one.description).join(' ')}`,
            'Runtime.exceptionThrown': () => `exception: ${params.exceptionDetails.text}`,
            'Audits.issueAdded': () => `issue: ${params.issue.code} ${JSON.stringify(params.issue.details).slice(0, 300)}`,
        }[method];
        if (says) this.complaints.push(says());
    }

    /** What the browser complained about since the last time. */
    takeComplaints() {
        return this.complaints.splice(0);
    }

    /** Does something that leads to another page, and waits until that is there and drawn: what is clicked before comes ahead of autofocus. */
    async onward(work) {
        const there = new Promise((done) => this.loaded.push(done));
        await work();
        await inTime(there, 'the next page');
        if (this.draws) await this.ask('new Promise((done) => requestAnimationFrame(done)).then(() => null)');
    }

    open(url) {
        return this.onward(() => this.send('Page.navigate', { url }));
    }

    async ask(expression) {
        const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, returnByValue: true, awaitPromise: true });
        if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
        return result.value;
    }

    /** Clicks in the middle of the element, as a mouse does. */
    async click(selector) {
        const at = await this.ask(`(() => {
            const element = document.querySelector(${JSON.stringify(selector)});
            if (!element) return null;
            element.scrollIntoView({ block: 'center' });
            const { x, y, width, height } = element.getBoundingClientRect();
            return { x: x + width / 2, y: y + height / 2 };
        })()`);
        if (!at) throw new Error(`no ${selector} on ${await this.ask('location.href')}`);
        for (const type of ['mousePressed', 'mouseReleased']) {
            await this.send('Input.dispatchMouseEvent', { type, ...at, button: 'left', clickCount: 1 });
        }
    }

    /** Types into a field in place of what is there. */
    async type(selector, text) {
        await this.click(selector);
        await this.ask(`document.querySelector(${JSON.stringify(selector)}).select()`);
        await this.send('Input.insertText', { text });
    }

    /** Presses a key. */
    async press(key, code, text) {
        const named = { key, code: key, windowsVirtualKeyCode: code, nativeVirtualKeyCode: code };
        await this.send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', ...named, ...(text ? { text } : {}) });
        await this.send('Input.dispatchKeyEvent', { type: 'keyUp', ...named });
    }

    async size(width, height) {
        await this.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    }

    async scheme(value) {
        await this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value }] });
    }

    /** Writes a picture of the whole page. */
    async picture(folder, name) {
        const { data } = await this.send('Page.captureScreenshot', { captureBeyondViewport: true });
        await writeFile(join(folder, `${name}.png`), Buffer.from(data, 'base64'));
    }
}

// What every page must keep, on a desk and on a phone, light and dark.
import { expect } from './client.mjs';

export const WIDE = [1280, 860];
export const PHONE = [390, 844];
const NARROW = [360, 740];
const TABLET = [800, 1100];

export class Pages {
    /** `pictures` is the folder for a picture of each page, if one is wanted. */
    constructor(pictures) {
        this.pictures = pictures;
    }

    /** Whether a page did not keep something. */
    failed = false;

    /** Holds the page that is there to what every page must keep; its picture goes to the folder. */
    seen = async (page, name, status, words, more = async () => {}) => {
        try {
            const text = await page.ask('document.body.innerText');
            for (const word of words) expect(text.includes(word), `"${word}" on the page, which says: ${text.slice(0, 400)}`);
            expect(page.response.status === status, `${status}, not ${page.response.status}`);
            const policy = page.response.headers['content-security-policy'] ?? '';
            expect(policy.includes("default-src 'none'") && policy.includes("frame-ancestors 'none'"), `a strict policy, not ${policy}`);
            // A status that is an error is said in the console; that is no complaint about the page.
            // Where a slow page is loaded after the walk has put the focus, Chromium says that it leaves it there.
            const harmless = /^network: .*status of 4\d\d|^rendering: Autofocus processing was blocked/;
            const complaints = page.takeComplaints().filter((said) => !harmless.test(said));
            expect(complaints.length === 0, `a quiet console, not ${complaints.join(' | ')}`);
            expect(await page.ask('document.querySelectorAll("h1").length === 1 && document.title.endsWith("· vault")'), 'a heading and a title');
            const unnamed = await page.ask(`[...document.querySelectorAll('input:not([type=hidden]):not([hidden])')].filter((field) => field.labels.length === 0).map((field) => field.name)`);
            expect(unnamed.length === 0, `a label for ${unnamed}`);
            expect(await page.ask('getComputedStyle(document.querySelector("main")).borderTopStyle') === 'solid', 'the style sheet applied');
            for (const [look, size, scheme] of [['wide', WIDE, 'light'], ['narrow', NARROW, 'light'], ['dark', WIDE, 'dark'], ['narrow-dark', PHONE, 'dark']]) {
                await page.size(...size);
                await page.scheme(scheme);
                const over = await page.ask('document.documentElement.scrollWidth - document.documentElement.clientWidth');
                expect(over <= 0, `nothing ${over} px wider than the ${look} window`);
                if (this.pictures) await page.picture(this.pictures, `${name}-${look}`);
            }
            await page.size(...TABLET);
            const over = await page.ask('document.documentElement.scrollWidth - document.documentElement.clientWidth');
            expect(over <= 0, `nothing ${over} px wider than the window of a tablet`);
            await page.size(...WIDE);
            await page.scheme('light');
            await more();
            console.log(`ok      ${name}`);
        } catch (error) {
            this.failed = true;
            console.log(`failed  ${name}: ${error.message}`);
            if (this.pictures) await page.picture(this.pictures, `${name}-failed`);
        }
    };
}

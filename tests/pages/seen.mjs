// What every page of the service must keep in a browser, for the walks.

export const WIDE = [1280, 860];
const NARROW = [360, 740];

export function expect(good, words) {
    if (!good) throw new Error(`expected ${words}`);
}

/** The checks of a page that is there, to which `name`, `status` and `words` belong. */
async function check(page, { name, status, words, pictures }) {
    const text = await page.ask('document.body.innerText');
    for (const word of words) {
        expect(text.includes(word), `"${word}" on the page, which says: ${text.slice(0, 400)}`);
    }
    expect(page.response.status === status, `${status}, not ${page.response.status}`);
    const policy = page.response.headers['content-security-policy'] ?? '';
    const strict = policy.includes("default-src 'none'") && policy.includes("frame-ancestors 'none'");
    expect(strict, `a strict policy, not ${policy}`);
    // A status that is an error is said in the console; that is no complaint about the page.
    const complaints = page.takeComplaints().filter((said) => !/^network: .*status of 4\d\d/.test(said));
    expect(complaints.length === 0, `a quiet console, not ${complaints.join(' | ')}`);
    const titled = 'document.querySelectorAll("h1").length === 1 && document.title.endsWith("· vault")';
    expect(await page.ask(titled), 'a heading and a title');
    const unnamed = await page.ask(`[...document.querySelectorAll('input:not([type=hidden]):not([hidden])')]
        .filter((field) => field.labels.length === 0).map((field) => field.name)`);
    expect(unnamed.length === 0, `a label for ${unnamed}`);
    const border = 'getComputedStyle(document.querySelector("main")).borderTopStyle';
    expect(await page.ask(border) === 'solid', 'the style sheet applied');
    const looks = [['wide', WIDE, 'light'], ['narrow', NARROW, 'light'], ['dark', WIDE, 'dark']];
    for (const [look, size, scheme] of looks) {
        await page.size(...size);
        await page.scheme(scheme);
        const over = await page.ask('document.documentElement.scrollWidth - innerWidth');
        expect(over <= 0, `nothing ${over} px wider than the ${look} window`);
        if (pictures) await page.picture(pictures, `${name}-${look}`);
    }
    await page.size(...WIDE);
    await page.scheme('light');
}

/**
 * A watch over pages: `seen` holds the page that is there to what every page must keep, and to `more`, and
 * prints a line; `failed` is whether one of them did not. Pictures go to the folder.
 */
export function watch(pictures) {
    const watched = {
        failed: false,
        async seen(page, name, status, words, more = async () => {}) {
            try {
                await check(page, { name, status, words, pictures });
                await more();
                console.log(`ok      ${name}`);
            } catch (error) {
                watched.failed = true;
                console.log(`failed  ${name}: ${error.message}`);
                if (pictures) await page.picture(pictures, `${name}-failed`);
            }
        },
    };
    return watched;
}

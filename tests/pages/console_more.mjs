// The decisions of an owner in the console that walk.mjs can call: a draft is declined and an app is ended, with the keyboard alone.

const KEYS = { Tab: [9, 'Tab', ''], Enter: [13, 'Enter', '\r'] };

/** Presses a key, as a person does. */
async function press(page, name) {
    const [windowsVirtualKeyCode, code, text] = KEYS[name];
    const key = { key: name, code, windowsVirtualKeyCode, nativeVirtualKeyCode: windowsVirtualKeyCode };
    await page.send('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', ...key, text });
    await page.send('Input.dispatchKeyEvent', { type: 'keyUp', ...key });
}

/** Presses Tab until an element that the expression is true of has the focus; fails after a page of tabs. */
export async function tabTo(page, expression) {
    for (let turn = 0; turn < 120; turn += 1) {
        await press(page, 'Tab');
        const there = await page.ask(`((e) => Boolean(e && (${expression})))(document.activeElement)`);
        if (there) {
            const seen = await page.ask('getComputedStyle(document.activeElement).outlineStyle !== "none"');
            if (!seen) throw new Error(`the focus cannot be seen on ${expression}`);
            return;
        }
    }
    throw new Error(`no Tab reaches ${expression} on ${await page.ask('location.href')}`);
}

/** Presses Enter on what has the focus, and waits for the page that it leads to. */
const enter = (page) => page.onward(() => press(page, 'Enter'));

/** Walks to a page of the vault by the navigation. */
async function goTo(page, title) {
    await tabTo(page, `e.closest('nav') && e.textContent === ${JSON.stringify(title)}`);
    await enter(page);
}

/**
 * Declines the oldest draft that waits. `page` is signed in as an owner at any page of the vault; `seen` holds each page to what all
 * pages must keep.
 */
export async function declineDraft(page, seen) {
    await goTo(page, 'Drafts');
    await seen(page, 'console-drafts', 200, ['Drafts', 'Waiting']);
    await tabTo(page, "e.closest('tbody') && e.tagName === 'A'");
    await enter(page);
    await seen(page, 'console-draft', 200, ['Findings of the security check', 'Decline']);
    await tabTo(page, "e.name === 'reason'");
    await page.send('Input.insertText', { text: 'We have this skill already.' });
    await enter(page);
    await seen(page, 'console-draft-declined', 200, ['The draft is declined.', 'We have this skill already.']);
}

/** Ends the first app of the list. */
export async function endApp(page, seen) {
    await goTo(page, 'Apps');
    await seen(page, 'console-apps', 200, ['Apps', 'End access']);
    await tabTo(page, "e.closest('tbody') && e.textContent === 'End access'");
    await enter(page);
    await seen(page, 'console-app-ended', 200, ['The access of the app has ended']);
}

/** Looks at the other pages of the vault. */
export async function lookAround(page, seen) {
    for (const [title, words] of [
        ['Releases', ['Releases']],
        ['People', ['Invite a person']],
        ['Log', ['Newest first', 'Download']],
        ['Vault', ['Subscription', 'Storage']],
    ]) {
        await goTo(page, title);
        await seen(page, `console-${title.toLowerCase()}`, 200, words);
    }
}

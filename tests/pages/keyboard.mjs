// What a person does on a page with the keyboard alone.
import { expect } from './client.mjs';

/** Presses Tab until the element has the focus: it must be reached by keyboard, and its focus must be seen. */
export async function tabTo(page, selector) {
    const wanted = JSON.stringify(selector);
    expect(await page.ask(`document.querySelector(${wanted}) !== null`), `${selector} on ${await page.ask('location.href')}`);
    for (let turn = 0; turn < 200; turn += 1) {
        if (await page.ask(`document.activeElement?.matches(${wanted}) ?? false`)) {
            const outline = await page.ask('getComputedStyle(document.activeElement).outlineStyle');
            expect(outline !== 'none', `a focus that is seen on ${selector}`);
            return;
        }
        await page.press('Tab', 9);
    }
    throw new Error(`${selector} is not reached by keyboard`);
}

/** Presses Enter where the focus is, and waits for the next page. */
export const submit = (page) => page.onward(() => page.press('Enter', 13, '\r'));

/** Goes to the element by keyboard and presses Enter; waits for the next page. */
export async function enter(page, selector) {
    await tabTo(page, selector);
    await submit(page);
}

/** Goes to the box by keyboard and ticks it with the space bar. */
export async function tick(page, selector) {
    await tabTo(page, selector);
    await page.press(' ', 32, ' ');
    expect(await page.ask(`document.querySelector(${JSON.stringify(selector)}).checked`), `a tick in ${selector}`);
}

/** Goes to the field by keyboard and types. */
export async function fill(page, selector, text) {
    await tabTo(page, selector);
    await page.send('Input.insertText', { text });
}

/** Goes to the link with this text by keyboard and follows it. */
export async function follow(page, text) {
    const href = await page.ask(`[...document.querySelectorAll('main a')].find((link) => link.textContent === ${JSON.stringify(text)})?.getAttribute('href')`);
    expect(href, `a link ${text} on ${await page.ask('location.href')}`);
    await enter(page, `main a[href=${JSON.stringify(href)}]`);
}

/** Signs in on the page that asks for it: by keyboard, as all here. */
export async function signIn(page, { email, password }) {
    expect(await page.ask('document.querySelector("#password") !== null'), `a sign-in with a password on ${await page.ask('location.href')}`);
    await page.ask('document.querySelector("#email").select()');
    await fill(page, '#email', email);
    await fill(page, '#password', password);
    await submit(page);
}

/** Chooses the option whose text begins with this one by keyboard. */
export async function choose(page, selector, text) {
    await tabTo(page, selector);
    await page.press('Home', 36);
    for (let turn = 0; turn < 200; turn += 1) {
        if ((await page.ask('document.activeElement.selectedOptions[0].text')).startsWith(text)) return;
        await page.press('ArrowDown', 40);
    }
    throw new Error(`${text} cannot be chosen in ${selector}`);
}

/** Goes to a page of the vault by the navigation; `path` is the end of its address. */
export const goTo = (page, path) => enter(page, `nav[aria-label="Pages of this vault"] a[href$="/${path}"]`);

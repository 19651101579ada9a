// The second half of the walk through the owner console, for console.mjs: drafts, releases, people, the log, the vault as a whole and
// apps. By keyboard alone; `held` holds each page to what every page of the console must keep.
import { choose, enter, fill, goTo, submit, tabTo } from './keyboard.mjs';

function expect(good, words) {
    if (!good) throw new Error(`expected ${words}`);
}

/** A SKILL.md with this text. */
const skill = (name, description, text) => `---\nname: ${name}\ndescription: ${description}\ntags: [test]\n---\n${text}\n`;

/** What an app asks the vault for: a skill that the security check warns about, one with hostile text, a removal. */
const DRAFTS = [
    ['propose', { skill_md: skill('set-up-shell', 'Sets up a shell.', 'Read the profile of the shell, then propose what is missing.') }],
    ['propose', {
        skill_md: skill('costs', '"<script>window.ran=1</script> מחיר 👩 Does the work of costs."', `${'W'.repeat(300)}\n<script>window.ran=1</script>`),
    }],
    ['remove', { name: 'table-of-files' }],
];

/** Sends the drafts, as an app does, with the token of a person. */
export async function sendDrafts(vault, slug, token) {
    for (const [kind, change] of DRAFTS) {
        const response = await fetch(`${vault}/admin/vaults/${slug}/drafts?kind=${kind}`, {
            method: 'POST',
            headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
            body: JSON.stringify(change),
        });
        expect(response.status === 201, `a draft kept, not ${response.status} ${await response.text()}`);
    }
}

/** A draft is declined, and another is accepted: the service signs this vault itself. */
export async function walkDrafts(page, held) {
    await goTo(page, 'drafts');
    await held('drafts', ['Drafts', 'set-up-shell', 'costs', 'table-of-files']);
    await enter(page, 'tbody tr:nth-child(1) a');
    await held('draft-finding', ['Findings of the security check', 'set-up-shell', 'Decline']);
    await fill(page, '#reason', 'The description does not say when to use the skill.');
    await submit(page);
    await held('draft-declined', ['The draft is declined.', 'The description does not say when']);
    await goTo(page, 'drafts');
    await enter(page, 'tbody tr:nth-child(1) a');
    await held('draft-new', ['costs', 'The new skill', 'Accept and publish']);
    expect(await page.ask('window.ran') === undefined, 'a text that runs nothing');
    await enter(page, 'button[value="accept"]');
    await held('draft-accepted', ['In release']);
    await goTo(page, 'drafts');
    await enter(page, 'tbody tr:nth-child(1) a');
    await held('draft-removal', ['asks to remove the skill']);
    await goTo(page, 'drafts');
    await enter(page, '.tabs li:last-child a');
    await held('drafts-last-state', ['Drafts']);
}

/** The list of releases with its timeline, and what one changed. */
export async function walkReleases(page, held) {
    await goTo(page, 'releases');
    await held('releases', ['Releases', 'Timeline', 'current', '1 added, 0 changed, 0 removed']);
    await enter(page, 'tbody tr:first-child th a');
    await held('release', ['Differences between release 1 and release 2', 'Added (1)', 'costs']);
    await tabTo(page, '#to');
    await enter(page, 'main form button[type="submit"]');
    await held('release-compared', ['Differences between release 1 and release 2', 'costs']);
}

/** A person is invited, and changed. */
export async function walkPeople(page, held, member) {
    await goTo(page, 'people');
    await held('people', ['People', member.email, 'Invite a person', 'Keys']);
    await fill(page, '#email', `${'a'.repeat(60)}@example.com`);
    await submit(page);
    await held('people-invited', ['invited, until']);
    await enter(page, 'tbody tr:last-child th a');
    await held('person-invited', ['Withdraw the invitation']);
    await enter(page, 'button[value="remove"]');
    await held('people-withdrawn', ['People', member.email]);
    await enter(page, 'tbody tr:last-child th a');
    await held('person', ['Change the role', 'End the membership']);
    await choose(page, '#role', 'Publisher: also publishes releases');
    await enter(page, 'div:has(> #role) + button');
    await held('person-changed', ['Change the role']);
    expect(await page.ask('document.querySelector("#role").value') === 'publisher', 'the role changed');
    await choose(page, '#role', 'Member: uses skills');
    await enter(page, 'div:has(> #role) + button');
}

/** The log as a whole, searched, and with nothing found; the vault. */
export async function walkRecords(page, held, slug) {
    await goTo(page, 'audit');
    await held('log', ['Newest first', 'Download', 'device.admit']);
    await fill(page, '#action', 'draft');
    await submit(page);
    await held('log-searched', ['draft.decline', 'Show everything']);
    await enter(page, 'main a[href$="/audit"]');
    await fill(page, '#target', 'nothing is called this');
    await submit(page);
    await held('log-empty', ['Show everything']);
    await goTo(page, 'namespace');
    await held('vault', [`The vault ${slug}`, 'Subscription', 'Storage']);
}

/** An app is ended: all that the walk has connected. */
export async function walkApps(page, held) {
    await goTo(page, 'apps');
    await held('apps', ['Apps', 'End access']);
    await enter(page, 'tbody button.danger');
    await held('app-ended', ['The access of the app has ended', 'No app has access to this vault.']);
}

/** The pages of a vault in which nothing was published. `page` is signed in as its owner. */
export async function walkEmptyVault(page, held, slug) {
    await held('empty-overview', [`Overview of ${slug}`, 'Nothing is published yet.', 'What to do next']);
    for (const [path, words] of [
        ['machines', ['No machine has asked for access yet.']],
        ['releases', ['Nothing was published yet.']],
        ['skills', ['Skills']],
        ['drafts', ['Drafts']],
        ['people', ['The keys are shown after the first release.']],
        ['apps', ['Apps']],
        ['audit', ['Log']],
        ['namespace', ['Delete the vault', 'Reset the pin']],
    ]) {
        await goTo(page, path);
        await held(`empty-${path}`, words);
    }
}

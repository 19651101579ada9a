// The second half of the walk through the owner console, for console.mjs: drafts, releases, people, the log, the vault as a whole and
// apps. By keyboard alone; `held` holds each page to what every page of the console must keep.
import { expect, post } from './client.mjs';
import { choose, enter, fill, follow, goTo, signIn, submit, tick } from './keyboard.mjs';

/** A SKILL.md with this text. */
const skill = (name, description, text) => `---\nname: ${name}\ndescription: ${description}\ntags: [test]\n---\n${text}\n`;

/** The draft that is declined: the security check warns about it. */
const DECLINED = ['propose', { skill_md: skill('set-up-shell', 'Sets up a shell.', 'Read the profile of the shell, then propose what is missing.') }];

/** What an app asks the vault for: that, a skill with hostile text, the change of a skill, a removal. */
export const DRAFTS = [
    DECLINED,
    ['propose', {
        skill_md: skill('costs', '"<script>window.ran=1</script> מחיר 👩 Does the work of costs."', `${'W'.repeat(300)}\n<script>window.ran=1</script>`),
    }],
    ['propose', { skill_md: skill('greeting', 'A made-up skill that says good morning.', 'Say good morning.') }],
    ['remove', { name: 'table-of-files' }],
];

/** Sends drafts, as an app does, with the token of a person. */
export async function sendDrafts(vault, slug, token, drafts = [DECLINED]) {
    for (const [kind, change] of drafts) await post(`${vault}/admin/vaults/${slug}/drafts?kind=${kind}`, change, token);
}

/** Declines the draft of the skill set-up-shell. */
export async function decline(page, held) {
    await goTo(page, 'drafts');
    await follow(page, 'set-up-shell');
    await held('draft-finding', ['Findings of the security check', 'set-up-shell', 'Decline']);
    await fill(page, '#reason', 'The description does not say when to use the skill.');
    await submit(page);
    await held('draft-declined', ['The draft is declined.', 'The description does not say when']);
}

/** A draft is declined, and others are accepted: the service signs this vault itself. */
export async function walkDrafts(page, held) {
    await goTo(page, 'drafts');
    await held('drafts', ['Drafts', 'set-up-shell', 'costs', 'greeting', 'table-of-files']);
    await decline(page, held);
    await goTo(page, 'drafts');
    await follow(page, 'costs');
    await held('draft-new', ['costs', 'The new skill', 'Accept and publish']);
    expect(await page.ask('window.ran') === undefined, 'a text that runs nothing');
    await enter(page, 'button[value="accept"]');
    await held('draft-accepted', ['In release']);
    await goTo(page, 'drafts');
    await follow(page, 'greeting');
    await held('draft-change', ['What it changes', 'Changed: SKILL.md', 'Removed: noise.bin', '+ Say good morning.']);
    await enter(page, 'button[value="accept"]');
    await goTo(page, 'drafts');
    await follow(page, 'table-of-files');
    await held('draft-removal', ['asks to remove the skill']);
    await goTo(page, 'drafts');
    await enter(page, '.tabs li:last-child a');
    await held('drafts-last-state', ['Drafts']);
}

/** The list of releases with its timeline, what one changed, in which lines, and what two changed together. */
export async function walkReleases(page, held) {
    await goTo(page, 'releases');
    await held('releases', ['Releases', 'Timeline', 'current', '3 added', '1 added', '1 changed']);
    await follow(page, 'Release 3');
    await held('release', ['Changes from release 2 to release 3', 'Changed (1)', 'greeting']);
    await follow(page, 'greeting');
    await held('release-files', ['Files of greeting', 'Changed: SKILL.md', '- Read references/more.md.', '+ Say good morning.', 'Removed: noise.bin']);
    await follow(page, 'All changes from release 2 to release 3');
    await choose(page, '#to', 'Release 1,');
    await enter(page, 'main form button[type="submit"]');
    await held('release-compared', ['Changes from release 1 to release 3', 'Added (1)', 'costs', 'Changed (1)']);
}

/** A person is invited, and changed. */
export async function walkPeople(page, held, member, owner) {
    await goTo(page, 'people');
    await held('people', ['People', member.email, 'Invite a person', 'Keys']);
    await fill(page, '#email', `${'a'.repeat(60)}@example.com`);
    await submit(page);
    await held('people-invited', ['invited, until']);
    await enter(page, 'tbody tr:last-child th a');
    await held('person-invited', ['Withdraw the invitation']);
    await enter(page, 'button[value="remove"]');
    await held('people-withdrawn', ['The invitation is withdrawn.', member.email]);
    await enter(page, 'tbody tr:last-child th a');
    await held('person', ['Change the role', 'End the membership', 'Skills that this person sees', 'Last used by an app']);
    await enter(page, 'a[href$="?confirm=remove"]');
    await held('person-end', [`End the membership of ${member.email}?`]);
    await follow(page, 'Cancel');
    await choose(page, '#role', 'Publisher: also publishes releases');
    await enter(page, 'div:has(> #role) + button');
    await confirm(page, held, owner, 'role-confirm', [`Make ${member.email} a publisher`]);
    await held('person-changed', ['Change the role']);
    expect(await page.ask('document.querySelector("#role").value') === 'publisher', 'the role changed');
    await choose(page, '#role', 'Member: uses skills');
    await enter(page, 'div:has(> #role) + button');
    await confirm(page, held, owner, 'role-confirm-back', [`Make ${member.email} a member`]);
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

/** Ends the access of the app with this id. */
export async function endApp(page, held, id) {
    await goTo(page, 'apps');
    await held('apps', ['Apps', 'End access']);
    await enter(page, `#end-${id}`);
    await held('app-end', ['End the access of', id]);
    await enter(page, 'main button.danger');
    await held('app-ended', ['The access of the app has ended']);
    // What it made is listed where it still works.
    await goTo(page, 'apps');
    expect(!(await page.ask('document.querySelector("main").innerText')).includes(id), `no app ${id} any more`);
}

/** An app is ended: all that the walk has connected. */
export async function walkApps(page, held, id) {
    await endApp(page, held, id);
    await held('apps-none', ['No app has access to this vault.']);
}

/** The pages of a vault in which nothing was published. `page` is signed in as its owner. */
export async function walkEmptyVault(page, held, slug) {
    await held('empty-overview', [`Overview of ${slug}`, 'Nothing is published yet.', 'What to do next']);
    for (const [path, words] of [
        ['machines', ['No machine has asked for access yet.']],
        ['releases', ['Nothing is published yet.']],
        ['skills', ['Skills', 'Nothing is published yet.']],
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

/** Confirms on the page that a dangerous form leads to; signs in again where the page asks for it first. */
async function confirm(page, held, owner, name, words) {
    if (await page.ask('document.querySelector("#password") !== null')) await signIn(page, owner);
    await held(name, ['Confirm this?', 'you, in the console', ...words]);
    await tick(page, 'input[name="sure"]');
    await enter(page, 'button[value="confirm"]');
}

/** The pin is reset and the vault deleted, each at the second try: the first has another name. */
export async function walkDeleted(page, held, slug, owner) {
    const refusal = 'Nothing was changed: what you typed is not the name of this vault.';
    await fill(page, '#reset-slug', 'another-vault');
    await submit(page);
    await held('pin-not-reset', [refusal]);
    await fill(page, '#reset-slug', slug);
    await submit(page);
    await confirm(page, held, owner, 'pin-confirm', [`Reset the pin of the vault ${slug}.`]);
    await held('pin-reset', ['The pin is reset.']);
    await fill(page, '#delete-slug', slug.slice(1));
    await submit(page);
    await held('vault-not-deleted', [refusal, 'Delete the vault']);
    await fill(page, '#delete-slug', slug);
    await submit(page);
    await confirm(page, held, owner, 'vault-confirm', [`Delete the vault ${slug}.`]);
    await held('vault-deleted', ['The vault is deleted. No one can open it any more.', 'Your vaults']);
    expect(!(await page.ask('document.body.innerText')).includes(slug), `no vault ${slug} any more`);
}

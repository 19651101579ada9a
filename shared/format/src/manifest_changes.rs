//! Describes for people how two versions of a skill's manifest differ. The bytes of files are
//! compared elsewhere.

use std::collections::BTreeMap;

use crate::catalog::{ChangeKind, ChangeLine};
use crate::manifest::{ActionSpec, FileEntry, Gate, Manifest, Waiver};
use crate::name::ActionName;
use crate::path::FilePath;
use crate::provenance::Provenance;
use crate::text::quoted_whole as quoted;

/// Returns a line for each difference that a reviewer should see: source, revision, target agents,
/// actions, gate, flags, waivers, modes of files. The version number, the time and the bytes of
/// files have none. For a new skill, `before` is `None`.
pub fn manifest_changes(before: Option<&Manifest>, after: &Manifest) -> Vec<ChangeLine> {
    use ChangeKind::{Changed, Warning};
    // The pattern names every member, so that a new one gets a line here or is left out on purpose.
    let Manifest {
        vault_id,
        name: _,
        frontmatter_name,
        version: _,
        signed_at: _,
        files,
        actions,
        agents,
        rendered_from,
        provenance,
        gate,
    } = after;
    let mut lines = Vec::new();
    let mut line = |kind, text| lines.push(ChangeLine::new(kind, text));
    // A manifest of another vault could be a replay of that vault's skill.
    if before.is_some_and(|before| before.vault_id != *vault_id) {
        line(Warning, format!("signed for the vault {vault_id}"));
    }
    let old = before.and_then(|before| before.frontmatter_name.as_ref());
    if old != frontmatter_name.as_ref() {
        let shown = |name: Option<&String>| name.map_or("none".to_owned(), |name| quoted(name));
        let (old, new) = (shown(old), shown(frontmatter_name.as_ref()));
        line(Changed, format!("author's name of it: {old} → {new}"));
    }
    let listed = |agents: &[_]| match agents {
        [] => "all".to_owned(),
        agents => agents
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    };
    let old = before.map(|before| before.agents.as_slice());
    if old.unwrap_or_default() != agents.as_slice() {
        let (old, new) = (listed(old.unwrap_or_default()), listed(agents));
        line(Changed, format!("agents: {old} → {new}"));
    }
    let old = before.and_then(|before| before.rendered_from.as_ref());
    if old != rendered_from.as_ref() {
        let text = rendered_from.as_ref().map_or_else(
            || "not rendered for an agent any more".to_owned(),
            |from| {
                let transforms = from.transforms.iter();
                let transforms = transforms.map(|it| format!("{} {}", quoted(&it.name), it.sha256));
                let (plain, agent) = (from.bundle_hash, &from.agent);
                let transforms = transforms.collect::<Vec<_>>().join(", ");
                format!("rendered for {agent} from {plain} by {transforms}")
            },
        );
        line(Changed, text);
    }
    for text in provenance_changes(before.map(|before| &before.provenance), provenance) {
        line(Changed, text);
    }
    for (kind, text) in gate_changes(before.map(|before| &before.gate), gate) {
        line(kind, text);
    }
    let none = BTreeMap::new();
    let old = before.map_or(&none, |before| &before.actions);
    for (kind, text) in action_changes(old, actions) {
        line(kind, text);
    }
    for text in mode_changes(before.map_or(&[][..], |before| &before.files), files) {
        line(Changed, text);
    }
    lines
}

fn provenance_changes(before: Option<&Provenance>, after: &Provenance) -> Vec<String> {
    let Provenance {
        identifier,
        revision,
        fetched_at: _,
    } = after;
    let mut texts = Vec::new();
    match before {
        Some(before) if before.identifier == *identifier => {}
        Some(before) => {
            let (old, new) = (quoted(before.identifier.as_str()), identifier.as_str());
            texts.push(format!("source: {old} → {}", quoted(new)));
        }
        None => texts.push(format!("source: {}", quoted(identifier.as_str()))),
    }
    let old = before.and_then(|before| before.revision.as_ref());
    if old != revision.as_ref() {
        let texts_of = [old, revision.as_ref()].map(|it| it.map(ToString::to_string));
        let [old, new] = texts_of.map(|it| it.map_or("none".to_owned(), |it| quoted(&it)));
        texts.push(format!("revision of the source: {old} → {new}"));
    }
    texts
}

fn gate_changes(before: Option<&Gate>, after: &Gate) -> Vec<(ChangeKind, String)> {
    let Gate {
        strict,
        rules,
        flags,
        waivers,
    } = after;
    let mut texts = Vec::new();
    if before.is_some_and(|before| before.rules != *rules) {
        texts.push((ChangeKind::Changed, format!("scanned by {}", quoted(rules))));
    }
    // Warn about a new skill too: the publisher who signs next also signs for flags that the first
    // one did not block.
    if before.is_none_or(|before| before.strict) && !strict {
        let text = "its publisher scanned it without refusing flags";
        texts.push((ChangeKind::Warning, text.to_owned()));
    }
    if before.is_some_and(|before| !before.strict) && *strict {
        let text = "its publisher scanned it and refused flags";
        texts.push((ChangeKind::Changed, text.to_owned()));
    }
    let old_flags = before.map_or(&[][..], |before| &before.flags);
    for flag in flags.iter().filter(|flag| !old_flags.contains(flag)) {
        let (rule, path) = (quoted(&flag.rule), quoted(&flag.path));
        let text = format!(
            "its publisher let {rule} pass in {path}, line {}",
            flag.line
        );
        texts.push((ChangeKind::Warning, text));
    }
    let gone = old_flags
        .iter()
        .filter(|flag| !flags.contains(flag))
        .count();
    if gone > 0 {
        texts.push((
            ChangeKind::Changed,
            format!("{gone} recorded flags are gone"),
        ));
    }
    let old_waivers = before.map_or(&[][..], |before| &before.waivers);
    let shown = |waiver: &Waiver| {
        let (rule, sha256) = (quoted(&waiver.rule), waiver.sha256);
        format!("{rule} on {sha256}: {}", quoted(&waiver.reason))
    };
    for waiver in waivers
        .iter()
        .filter(|waiver| !old_waivers.contains(waiver))
    {
        let text = format!("its publisher accepts {}", shown(waiver));
        texts.push((ChangeKind::Warning, text));
    }
    for waiver in old_waivers
        .iter()
        .filter(|waiver| !waivers.contains(waiver))
    {
        let text = format!("its publisher no longer accepts {}", shown(waiver));
        texts.push((ChangeKind::Changed, text));
    }
    texts
}

fn action_changes(
    before: &BTreeMap<ActionName, ActionSpec>,
    after: &BTreeMap<ActionName, ActionSpec>,
) -> Vec<(ChangeKind, String)> {
    let mut texts = Vec::new();
    for (name, spec) in after {
        match before.get(name) {
            Some(old) if old == spec => {}
            Some(old) => texts.push((
                ChangeKind::Changed,
                format!(
                    "action {name}: {} → {}",
                    describe_action(old),
                    describe_action(spec)
                ),
            )),
            None => texts.push((
                ChangeKind::Added,
                format!("action {name}: {}", describe_action(spec)),
            )),
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        texts.push((ChangeKind::Removed, format!("action {name}")));
    }
    texts
}

fn describe_action(spec: &ActionSpec) -> String {
    let ActionSpec {
        command,
        args,
        cwd,
        description,
        requires_tty,
    } = spec;
    // Each word is quoted on its own, so that one argument with spaces does not look like several.
    let words = std::iter::once(command)
        .chain(args)
        .map(|word| quoted(word));
    let mut text = words.collect::<Vec<_>>().join(" ");
    if cwd != "." {
        text += &format!(" in {}", quoted(cwd));
    }
    if let Some(description) = description {
        text += &format!(" ({})", quoted(description));
    }
    if *requires_tty {
        text += ", asks on a terminal";
    }
    text
}

/// Describes files that differ in their mode alone. New, removed and changed files are compared by
/// their bytes.
fn mode_changes(before: &[FileEntry], after: &[FileEntry]) -> Vec<String> {
    let old: BTreeMap<&FilePath, _> = before.iter().map(|file| (&file.path, file.mode)).collect();
    let mut texts = Vec::new();
    for file in after {
        let FileEntry {
            path,
            size: _,
            sha256: _,
            mode,
        } = file;
        if let Some(old) = old.get(path)
            && old != mode
        {
            let (path, old, new) = (quoted(path.as_str()), old.bits(), mode.bits());
            texts.push(format!("mode of {path}: {old:04o} → {new:04o}"));
        }
    }
    texts
}

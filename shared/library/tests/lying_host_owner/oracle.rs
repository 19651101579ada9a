//! What may be signed and what must have been shown, decided from what the test knows of the
//! history: never by asking the judge that is under test.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vault_format::catalog::{Catalog, ReleaseRef};
use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::root::KeyFingerprint;
use vault_library::publish::{CheckedSkill, ReleaseChange, Reviewed};
use vault_policy::profile::Profile;

use super::history::{History, Line, Signed};
use super::skills::{Made, Skills};

/// Whether the content of a file may be used on the owner's machine, which follows these root
/// versions: enough publishers of the newest one signed it, or this machine recorded exactly this
/// payload, or its owner named it.
pub fn may_be_used(
    file: &Signed,
    line: &Line,
    history: &History,
    has_record: bool,
    last_good: Option<ReleaseRef>,
) -> bool {
    let recorded = history.recorded.iter().map(|at| &history.releases[*at]);
    let is_recorded = has_record && recorded.clone().any(|it| it.stored() == file.stored());
    let roles = line.newest();
    let signers = file
        .signers
        .iter()
        .filter(|key| roles.release.contains(key) && !roles.revoked.contains(key));
    let names_own = line.chain().find(&file.catalog.root_sha256).is_some();
    is_recorded
        || last_good == Some(file.stored())
        || (signers.count() >= roles.threshold && names_own)
}

/// Whether a bundle is by somebody who was a publisher and is not revoked.
fn is_by_publisher(made: &Made, line: &Line) -> bool {
    let mut roles = line.roles.iter();
    let was = roles.any(|roles| roles.release.contains(&made.by));
    was && !line.newest().revoked.contains(&made.by)
}

/// Fails unless every member in which two catalogs differ has a line that names it.
#[track_caller]
pub fn every_difference_has_a_line(before: Option<&Catalog>, after: &Catalog, lines: &[String]) {
    let old = before.map_or(Value::Null, |before| serde_json::to_value(before).unwrap());
    let new = serde_json::to_value(after).unwrap();
    let has = |parts: &[&str]| {
        let mut lines = lines.iter();
        lines.any(|line| parts.iter().all(|part| line.contains(part)))
    };
    for (member, value) in new.as_object().unwrap() {
        let former = &old[member];
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        if former == value || former.is_null() && is_empty {
            continue;
        }
        let shown = match member.as_str() {
            "release" | "issued_at" | "previous" => true,
            "schema" | "vault_id" | "slug" => before.is_none(),
            "expires_at" => has(&["valid until"]),
            "public_key" => {
                let signer = KeyFingerprint::publisher(&after.public_key).to_string();
                before.is_none() || has(&["signer", &signer])
            }
            "root_version" | "root_sha256" => before.is_none() || has(&["keys of the vault"]),
            "index" => before.is_none() || has(&["search texts"]),
            "policy" => value.is_null() && before.is_none() || has(&["policy"]),
            "skills" => differing(former, value, "name")
                .iter()
                .all(|name| has(&[name, "version"])),
            "profiles" => {
                let entries = differing(former, value, "name");
                let mut named = entries.iter();
                let shown = named.all(|name| has(&["profile", name]));
                shown && (!entries.is_empty() || has(&["order of profiles"]))
            }
            "withdrawn" => {
                let entries = differing(former, value, "bundle_hash");
                let mut named = entries.iter();
                let shown = named.all(|hash| has(&["withdrawn", hash]));
                shown && (!entries.is_empty() || has(&["order of withdrawn"]))
            }
            "audience" => {
                let addresses = |value: &Value| -> BTreeSet<String> {
                    let all = value.as_array().into_iter().flatten();
                    all.map(|it| it.as_str().unwrap().to_owned()).collect()
                };
                let (old, new) = (addresses(former), addresses(value));
                let mut differing = old.symmetric_difference(&new).peekable();
                match differing.peek() {
                    Some(_) => differing.all(|address| has(&["served from", address])),
                    None => has(&["order of audience"]),
                }
            }
            other => panic!("a new member {other}: say how its line names it"),
        };
        assert!(
            shown,
            "{member} differs and no line names it: {lines:#?}\n{former}\n{value}"
        );
    }
}

/// The entries of two lists that differ, by this member.
fn differing(old: &Value, new: &Value, by: &str) -> BTreeSet<String> {
    let index = |list: &Value| -> BTreeMap<String, Value> {
        let entries = list.as_array().into_iter().flatten();
        entries
            .map(|entry| (entry[by].as_str().unwrap().to_owned(), entry.clone()))
            .collect()
    };
    let (old, new) = (index(old), index(new));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .cloned()
        .collect()
}

/// Fails unless a review that passed shows all that differs from the release that counted last, and
/// holds nothing that must be refused.
#[track_caller]
pub fn a_review_is_whole(
    change: &ReleaseChange,
    reviewed: &Reviewed,
    before: Option<&Catalog>,
    line: &Line,
    skills: &Skills,
) {
    let after = &change.catalog;
    let index = skills.index(after);
    assert_eq!(
        after.index, index,
        "the search texts are not those of the skills"
    );
    for entry in &after.skills {
        let old = before.and_then(|before| before.skill(&entry.name));
        if old == Some(entry) {
            continue;
        }
        let made = skills.get(&entry.bundle_hash);
        assert!(!made.twist.is_refused(), "{}: {:?}", entry.name, made.twist);
        assert!(is_by_publisher(made, line), "{} by {}", entry.name, made.by);
        let old = old.map(|old| skills.get(&old.bundle_hash));
        let mut shown = reviewed.skills.iter();
        let shown = shown.find(|it| it.name == entry.name && it.rendered_for.is_none());
        let shown = shown.unwrap_or_else(|| panic!("{} is not shown", entry.name));
        assert_eq!(shown.files, made.files, "{}", entry.name);
        assert_eq!(
            shown.before,
            old.map_or(Vec::new(), |old| old.files.clone())
        );
        what_a_manifest_says_is_shown(old.map(|old| &old.manifest), &made.manifest, shown);
    }
    let none = Vec::new();
    let old = before.map_or(none, |before| skills.profiles(before));
    for profile in skills.profiles(after) {
        members_are_shown(&old, &profile, reviewed);
    }
}

#[track_caller]
fn what_a_manifest_says_is_shown(
    before: Option<&Manifest>,
    after: &Manifest,
    shown: &CheckedSkill,
) {
    let lines = &shown.lines;
    let has = |part: &str| lines.iter().any(|line| line.text.contains(part));
    let differs = |differs: bool, part: &str| {
        assert!(!differs || has(part), "{}: {part}: {lines:#?}", shown.name);
    };
    let agents = before.map_or(&[][..], |before| &before.agents);
    differs(agents != after.agents, "agents:");
    let source = after.provenance.identifier.as_str();
    let old = before.map(|before| before.provenance.identifier.as_str());
    differs(old != Some(source), source);
    for (name, action) in &after.actions {
        let old = before.and_then(|before| before.actions.get(name));
        differs(old != Some(action), name.as_str());
    }
    for name in before.into_iter().flat_map(|before| before.actions.keys()) {
        differs(!after.actions.contains_key(name), name.as_str());
    }
    for file in &after.files {
        let old = before.and_then(|before| before.files.iter().find(|it| it.path == file.path));
        differs(
            old.is_some_and(|old| old.mode != file.mode),
            file.path.as_str(),
        );
    }
}

/// Fails unless each skill that a profile gains or loses has a line.
#[track_caller]
fn members_are_shown(before: &[Profile], after: &Profile, reviewed: &Reviewed) {
    let members = |profile: Option<&Profile>| -> BTreeMap<String, Digest> {
        let skills = profile.into_iter().flat_map(|profile| &profile.skills);
        skills
            .map(|it| (it.name.to_string(), it.bundle_hash))
            .collect()
    };
    let former = before.iter().find(|former| former.name == after.name);
    let (old, new) = (members(former), members(Some(after)));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for name in names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
    {
        let mut lines = reviewed.profiles.iter();
        let is_shown =
            lines.any(|line| line.text.contains(&after.name) && line.text.contains(name));
        assert!(
            is_shown,
            "profile {}: {name}: {:#?}",
            after.name, reviewed.profiles
        );
    }
}

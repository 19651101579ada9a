//! Resolves names from the command line. A failure suggests the most similar existing name. A
//! *bare* name is a skill's own name; a *qualified* name, `<vault>/<skill>`, also names the linked
//! vault that the skill comes from.

use std::path::{Path, PathBuf};

use vault_format::name::{SkillName, SkillRef};
use vault_library::{
    Origin, Vault, VaultError,
    run::{self, FoundSkill},
    shelf, subscribe,
};

use crate::{
    errors::{ErrorCode, Failure},
    output::{HINT, clean, nearest_name, paint},
};

/// Returns the folder of a skill. `path` is the folder or its SKILL.md.
pub fn folder_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|_| path.is_file());
    parent.unwrap_or(path).to_owned()
}

/// The meaning of an argument that is a name or a path.
#[derive(Debug)]
pub enum Target {
    /// A skill that this vault or a linked one has installed.
    Installed(SkillRef),
    /// A file or folder on disk, which need not be in the vault.
    Path(PathBuf),
}

/// Resolves an argument to the installed skill of this name, or else to a path. Fails with a
/// suggestion if neither exists.
pub fn resolve_target(vault: Option<&Vault>, word: &str) -> Result<Target, Failure> {
    if let (Some(vault), Ok(skill)) = (vault, word.parse::<SkillRef>())
        && run::find_skill(vault, &skill)?.is_some()
    {
        return Ok(Target::Installed(skill));
    }
    let path = PathBuf::from(word);
    if path.symlink_metadata().is_ok() {
        return Ok(Target::Path(path));
    }
    // No bare name has these characters. A qualified name has a slash too, but a text that is no
    // installed skill is more often a mistyped path.
    if word.contains(['/', '.']) {
        return Err(Failure::no_such_path(word));
    }
    Err(not_installed(vault, word))
}

/// Creates the failure for a name that is not installed, with the nearest installed name as a hint.
pub fn not_installed(vault: Option<&Vault>, name: &str) -> Failure {
    let failure = fail!(
        SkillNotFound,
        "no skill named `{}` is installed",
        clean(name, 140)
    );
    match vault {
        Some(vault) => with_suggestion(failure, vault, name),
        None => failure.hint("this vault is empty: vault add <folder>"),
    }
}

/// Returns the vault and the parsed name of a skill. Fails if there is no vault or the name is
/// invalid. Does not check that the skill is installed.
pub fn parse_installed_name<'v>(
    vault: Option<&'v Vault>,
    name: &str,
) -> Result<(&'v Vault, SkillRef), Failure> {
    let not_found = || not_installed(vault, name);
    Ok((
        vault.ok_or_else(not_found)?,
        name.parse().map_err(|_| not_found())?,
    ))
}

/// Creates the failure for a name that is not among `names`, with the nearest of them as a hint.
pub fn not_installed_among(name: &str, names: &[impl AsRef<str>]) -> Failure {
    let failure = fail!(NotInstalled, "`{}` is not installed", clean(name, 64));
    let names = names.iter().map(AsRef::as_ref);
    not_listed(failure, name, names, "vault list")
}

pub fn suggest_name(vault: &Vault, error: run::RunError) -> Failure {
    match &error {
        run::RunError::UnknownSkill(skill) => not_installed(Some(vault), &skill.to_string()),
        _ => error.into(),
    }
}

fn with_suggestion(failure: Failure, vault: &Vault, name: &str) -> Failure {
    // If the names cannot be listed, leave out the suggestion: the failure at hand is the more
    // important one.
    let names = installed_names(vault).unwrap_or_default();
    match nearest_name(name, names.iter().map(String::as_str)) {
        Some(near) => failure.hint(format!("did you mean `{}`?", paint(HINT, near))),
        None => failure.hint("vault list shows what is installed"),
    }
}

/// Returns the names of all installed skills that are not damaged: the bare name, or the qualified
/// name if the bare one means another skill.
pub fn installed_names(vault: &Vault) -> Result<Vec<String>, VaultError> {
    let skills = shelf::list_installed(vault)?.skills.into_iter();
    let name = |skill: shelf::Listed| {
        if skill.shadowed {
            skill.qualified
        } else {
            skill.name.to_string()
        }
    };
    Ok(skills.map(name).collect())
}

/// Returns the name of a skill that this vault itself signs. Fails for skills of linked vaults,
/// which only their owners can change.
pub fn find_own(vault: &Vault, skill: &SkillRef) -> Result<SkillName, Failure> {
    match run::find_skill(vault, skill)? {
        Some(FoundSkill {
            name,
            origin: Origin::Local,
            ..
        }) => Ok(name),
        Some(FoundSkill {
            origin: Origin::Linked(link),
            qualified,
            ..
        }) => {
            let link = subscribe::find_link_by_id(vault, &link)?;
            let from = link.map(|link| link.pin().name.to_string());
            let from = from.unwrap_or_default();
            Err(fail!(
                SkillNotFound,
                "{qualified} is not installed from this vault"
            )
            .hint(format!(
                "its owner changes it there: vault cloud pull --from {from}"
            )))
        }
        _ => Err(not_own(vault, skill)?),
    }
}

/// Returns the bare name of an installed skill, for commands that change what agents see. Fails if
/// agents see another skill, or none, under that name.
pub fn find_bare_name(vault: &Vault, text: &str) -> Result<SkillName, Failure> {
    let skill: SkillRef = text.parse().map_err(|_| not_installed(Some(vault), text))?;
    match run::find_skill(vault, &skill)? {
        Some(found) if found.bare => Ok(found.name),
        Some(found) => Err(fail!(
            NotInstalled,
            "{} is shown to no agent: {} means another skill, or none",
            found.qualified,
            found.name
        )
        .hint(format!("vault link prefer {}", found.qualified))),
        None => Err(not_installed(Some(vault), text)),
    }
}

/// Adds a hint to `failure`: the nearest of `names`, or else the command that lists them.
pub fn not_listed<'n>(
    failure: Failure,
    asked: &str,
    names: impl Iterator<Item = &'n str>,
    list: &str,
) -> Failure {
    match nearest_name(asked, names) {
        Some(near) => failure.hint(format!("did you mean `{}`?", clean(near, 64))),
        None => failure.hint(format!("{list} shows them all")),
    }
}

/// Creates the failure for a skill that this vault did not sign itself.
pub fn not_own(vault: &Vault, name: impl std::fmt::Display) -> Result<Failure, Failure> {
    let name = name.to_string();
    let mut names = installed_names(vault)?;
    // The same name may exist in a linked vault. Do not suggest what the user has typed.
    names.retain(|other| *other != name);
    let failure = fail!(SkillNotFound, "{name} is not installed from this vault");
    let names = names.iter().map(String::as_str);
    Ok(not_listed(failure, &name, names, "vault list"))
}

/// The words and error codes of [`pick_entry`] for one kind of entries, such as devices.
pub struct EntryWords {
    /// The noun for one entry.
    pub noun: &'static str,
    /// The code for a name that no entry has.
    pub missing: ErrorCode,
    /// The code for a name that several entries have.
    pub ambiguous: ErrorCode,
    /// The command that lists the entries.
    pub list: &'static str,
}

/// Finds the entry whose id is `asked`, or else the only one with that name. If several have the
/// name, the failure lists them, formatted by `line`.
pub fn pick_entry<'t, T>(
    kind: &EntryWords,
    entries: &'t [T],
    asked: &str,
    id_and_name: impl Fn(&'t T) -> (&'t str, Option<&'t str>),
    line: impl Fn(&T) -> String,
) -> Result<&'t T, Failure> {
    // An id is unique, so it takes precedence over names.
    if let Some(entry) = entries.iter().find(|entry| id_and_name(entry).0 == asked) {
        return Ok(entry);
    }
    let has_name = |entry: &&'t T| id_and_name(entry).1 == Some(asked);
    let named: Vec<&T> = entries.iter().filter(has_name).collect();
    let (noun, shown) = (kind.noun, clean(asked, 64));
    match named[..] {
        [entry] => Ok(entry),
        [] => {
            let failure = Failure::new(kind.missing, format!("no {noun} is called `{shown}`"));
            let names = entries.iter().flat_map(|entry| {
                let (id, name) = id_and_name(entry);
                name.into_iter().chain([id])
            });
            Err(not_listed(failure, asked, names, kind.list))
        }
        _ => Err(Failure::new(
            kind.ambiguous,
            format!("{} {noun}s are called `{shown}`", named.len()),
        )
        .hint("name one by its id")
        .details(named.into_iter().map(line))),
    }
}

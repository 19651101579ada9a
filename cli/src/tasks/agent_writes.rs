//! The setting `VAULT_MCP_WRITES`: whether a change that an agent makes through the MCP server on
//! standard input and output takes effect at once, or waits as a draft for the user.

use std::{io::Write as _, os::unix::fs::DirBuilderExt as _, path::Path};

use crate::{
    context::Context,
    errors::{Failure, Place},
    settings::{Origin, layers::user_file},
};

/// The environment variable of the setting. `config.toml` has it under [`KEY`].
pub const VARIABLE: &str = "VAULT_MCP_WRITES";
const KEY: &str = "mcp_writes";
const QUESTION: &str = "What happens when an agent changes a skill?";
/// Each value of the setting, with its meaning as the question shows it. The first one is the
/// default.
const MEANINGS: [(&str, &str); 2] = [
    ("sign", "It counts at once: vault signs it with your key"),
    ("draft", "It waits until you accept it with `vault drafts`"),
];

/// Asks the user for a value of [`VARIABLE`], and returns it. Writes nothing.
pub fn ask_writes(context: &Context) -> Result<&'static str, Failure> {
    let meanings = MEANINGS.map(|(_, meaning)| meaning.to_owned()).to_vec();
    let chosen = context.ui.choose_first(QUESTION, meanings)?;
    let mut known = MEANINGS.iter();
    let chosen = known.find(|(_, meaning)| *meaning == chosen);
    Ok(chosen.map_or(MEANINGS[0].0, |(value, _)| value))
}

/// Returns whether a configuration file already has the setting. A variable of this shell does not
/// count, because it does not reach the agents.
pub fn is_chosen(context: &Context) -> Result<bool, Failure> {
    let chosen = context.settings()?.with_origin(VARIABLE);
    Ok(matches!(chosen, Some((_, Origin::File(..)))))
}

/// Writes a value to the user's `config.toml`, which [`Context::settings`] reads, and keeps the rest
/// of the file.
pub fn write_setting(context: &Context, value: &str) -> Result<(), Failure> {
    let chosen = context.global.config.clone();
    let file = match chosen.or_else(|| user_file(&context.process)) {
        Some(file) => file,
        None => {
            let folder = context.process.config_folder();
            let folder =
                folder.ok_or_else(|| fail!(NoHome, "there is no home folder").hint("set HOME"))?;
            folder.join("config.toml")
        }
    };
    let failed = |error: std::io::Error| Failure::io("writing", &file, &error);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(Failure::io("reading", &file, &error)),
    };
    let mut document: toml_edit::DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| {
            fail!(SettingInvalid, "{}", error.message()).at(Place::new(&file, None))
        })?;
    document.insert(KEY, toml_edit::value(value));
    replace_file(&file, &document.to_string()).map_err(failed)
}

/// Replaces a file in one step and keeps its mode.
fn replace_file(file: &Path, text: &str) -> std::io::Result<()> {
    // A link that a dotfile manager made stays, and its target is replaced.
    let file = &std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().unwrap_or(Path::new("."));
    // The vault's keys lie below this folder, so only this user may enter it.
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    new.write_all(text.as_bytes())?;
    if let Ok(old) = file.metadata() {
        new.as_file().set_permissions(old.permissions())?;
    }
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

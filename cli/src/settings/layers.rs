//! Loads the settings from their layers: the user's file, overridden by the project's file,
//! overridden by the environment. Also finds these files.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{
    Origin, Settings,
    table::{TABLE, ValueKind, Variable, file_name, is_true, variable_named, variable_names},
};
use crate::{
    errors::{ErrorCode, Failure, Place},
    process::Process,
    text::{clean, line_of, nearest_name},
};

/// Maximum size of a settings file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The settings that a project's `vault.toml` may contain. A project may be untrusted, so settings
/// of keys, addresses, paths and policy are missing. A project may make the gate (scanner)
/// stricter, but never laxer.
const FOR_PROJECTS: [&str; 4] = [
    "VAULT_LOG_LEVEL",
    "VAULT_SEARCH_MODE",
    "VAULT_SECURITY_STRICT",
    "VAULT_TOOL_NAMES",
];

impl Settings {
    /// Loads the settings from a file, if one is given, and from the environment, which overrides
    /// the file.
    ///
    /// Fails with exit 2 if the file cannot be read, contains an unknown name, or a value has the
    /// wrong type.
    pub fn load(process: &Process, file: Option<&Path>) -> Result<Self, Failure> {
        Self::load_layered(process, file, None)
    }

    /// Like [`Settings::load`], with a project's file between the user's file and the environment.
    /// A faulty file of a project sets nothing: [`Settings::project_fault`] says why.
    pub fn load_layered(
        process: &Process,
        file: Option<&Path>,
        project: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut settings = Self::default();
        if let Some(path) = file {
            settings.read_file(path, false)?;
        }
        if let Some(path) = project {
            // The author of the file is untrusted, so a fault in it must neither stop commands nor
            // apply half of the file.
            let before = settings.clone();
            if let Err(fault) = settings.read_file(path, true) {
                settings = before;
                settings.project_fault = Some(fault);
            }
        }
        for &Variable { name, kind, .. } in TABLE {
            if let Some(value) = process.variable(name) {
                settings.set_value(name, kind, value.to_owned(), Origin::Variable(name))?;
            }
        }
        // `PORT` has no `VAULT_` prefix and is therefore not in the table. Other programs set it
        // for themselves, so only a command that listens judges it.
        if let Some(port) = process.variable("PORT") {
            settings.set_value(
                "PORT",
                ValueKind::Text,
                port.to_owned(),
                Origin::Variable("PORT"),
            )?;
        }
        Ok(settings)
    }

    fn read_file(&mut self, path: &Path, project: bool) -> Result<(), Failure> {
        let text = read_text(path).map_err(|error| {
            let path = path.display();
            fail!(
                SettingsUnreadable,
                "the settings in {path} cannot be read: {error}"
            )
        })?;
        let table = toml::de::DeTable::parse(&text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            Failure::new(ErrorCode::SettingsInvalid, error.message())
                .at(Place::new(path, line_of(&text, start)))
        })?;
        for (key, value) in table.get_ref() {
            let line = line_of(&text, key.span().start);
            let (name, kind, value) = file_setting(key.get_ref(), value.get_ref(), project)
                .map_err(|failure| failure.at(Place::new(path, line)))?;
            let from = if project {
                Origin::Project
            } else {
                Origin::File
            };
            self.set_value(name, kind, value, from(path.to_owned(), line))?;
        }
        Ok(())
    }
}

/// Reads a settings file. Fails if it is larger than [`MAX_BYTES`].
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let limit = format!("it is larger than {} KiB", MAX_BYTES >> 10);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, limit));
    }
    Ok(text)
}

/// Returns the variable that corresponds to a key of a settings file, its type, and the text of the
/// value. Fails if there is no such setting, or if `project` is set and a project must not set it.
fn file_setting(
    key: &str,
    value: &toml::de::DeValue<'_>,
    project: bool,
) -> Result<(&'static str, ValueKind, String), Failure> {
    let variable_name = format!("VAULT_{}", key.to_uppercase());
    let Some(&Variable { name, kind, .. }) = variable_named(&variable_name) else {
        let near = nearest_name(&variable_name, variable_names());
        return Err(
            fail!(SettingUnknown, "there is no setting `{}`", clean(key, 60))
                .hint_if(near.map(|near| format!("did you mean `{}`?", file_name(near)))),
        );
    };
    let shown = file_name(name);
    let Some(value) = plain_text(value) else {
        return Err(fail!(
            SettingInvalid,
            "`{shown}` cannot be a table or a date"
        ));
    };
    // A project may come from someone untrusted, so it must not disable the strict gate.
    let weakens = name == "VAULT_SECURITY_STRICT" && is_true(&value) == Some(false);
    let refused = match project {
        true if !FOR_PROJECTS.contains(&name) => "set",
        true if weakens => "turn off",
        _ => return Ok((name, kind, value)),
    };
    Err(fail!(SettingNotForProjects, "a project cannot {refused} `{shown}`").hint(format!(
        "set it in your own config.toml or as {name}; `vault config list --origin` shows where each value comes from"
    )))
}

fn plain_text(value: &toml::de::DeValue<'_>) -> Option<String> {
    use toml::de::DeValue;
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Array(members) => {
            let members = members.iter().map(|member| plain_text(member.get_ref()));
            Some(members.collect::<Option<Vec<_>>>()?.join(","))
        }
        _ => None,
    }
}

/// Finds the settings file of the project that contains `folder`: the nearest `vault.toml` at or
/// above it. The search stops at the repository's root and never reaches the home folder or its
/// parents.
pub fn project_file(process: &Process, folder: &Path) -> Option<PathBuf> {
    const LEVELS: usize = 64;
    for folder in folder.ancestors().take(LEVELS) {
        if process.home().is_some_and(|home| home.starts_with(folder)) {
            return None;
        }
        let file = folder.join("vault.toml");
        if file.is_file() {
            return Some(file);
        }
        if folder.join(".git").exists() {
            return None;
        }
    }
    None
}

/// Finds the user's settings: `config.toml` in the folder that `VAULT_STORAGE_PATH` names, or else
/// in the configuration folder.
pub fn user_file(process: &Process) -> Option<PathBuf> {
    let beside = process
        .variable("VAULT_STORAGE_PATH")
        .map(|folder| expand_home(process, folder).join("config.toml"))
        .filter(|file| file.is_file());
    beside.or_else(|| {
        let file = process.config_folder()?.join("config.toml");
        file.exists().then_some(file)
    })
}

/// Expands `~/` in a path to the home folder, because no shell expands the values in a file.
pub fn expand_home(process: &Process, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), process.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

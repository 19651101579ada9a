//! The layers of settings: the user's file, the project's file and the environment, and the
//! locations of the files.

use std::path::{Path, PathBuf};

use super::{
    Origin, Settings,
    process::Process,
    table::{Kind, TABLE, Variable, file_name, is_true, variable_named, variable_names},
};
use crate::{
    errors::{ErrorCode, Failure, Place},
    output::text::{clean, nearest},
};

/// The settings that a project's `vault.toml` may contain. All others concern keys, addresses,
/// paths or policy, and a project may be untrusted. A project may make the gate stricter but never
/// laxer.
const FOR_PROJECTS: [&str; 4] = [
    "VAULT_LOG_LEVEL",
    "VAULT_SEARCH_MODE",
    "VAULT_SECURITY_STRICT",
    "VAULT_TOOL_NAMES",
];

impl Settings {
    /// Loads the file, if one is given. The environment overrides it.
    ///
    /// Fails with exit 2 if the file cannot be read, contains an unknown name, or a value has the
    /// wrong type.
    pub fn load(process: &Process, file: Option<&Path>) -> Result<Self, Failure> {
        Self::layered(process, file, None)
    }

    /// Like [`Settings::load`], with a project's file between the user's file and the environment.
    /// Fails if the project's file contains a setting that projects must not set.
    pub fn layered(
        process: &Process,
        file: Option<&Path>,
        project: Option<&Path>,
    ) -> Result<Self, Failure> {
        let mut settings = Self::default();
        if let Some(path) = file {
            settings.read_file(path, false)?;
        }
        if let Some(path) = project {
            settings.read_file(path, true)?;
        }
        for &Variable { name, kind, .. } in TABLE {
            if let Some(value) = process.variable(name) {
                settings.set(name, kind, value.to_owned(), Origin::Variable(name))?;
            }
        }
        // `PORT` has no `VAULT_` prefix and is therefore not in the table.
        if let Some(port) = process.variable("PORT") {
            settings.set(
                "PORT",
                Kind::Number,
                port.to_owned(),
                Origin::Variable("PORT"),
            )?;
        }
        Ok(settings)
    }

    fn read_file(&mut self, path: &Path, project: bool) -> Result<(), Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            fail!(
                SettingsUnreadable,
                "the settings in {} cannot be read: {error}",
                path.display()
            )
        })?;
        let at = |offset: usize| {
            let before = &text[..offset.min(text.len())];
            let line = before.matches('\n').count() + 1;
            u32::try_from(line).unwrap_or(u32::MAX)
        };
        let place = |line| Place {
            path: path.display().to_string(),
            line: Some(line),
            column: None,
        };
        let table = toml::de::DeTable::parse(&text).map_err(|error| {
            Failure::new(ErrorCode::SettingsInvalid, error.message().to_owned())
                .at(place(at(error.span().map_or(0, |span| span.start))))
        })?;
        for (key, value) in table.get_ref() {
            let line = at(key.span().start);
            let wanted = format!("VAULT_{}", key.get_ref().to_uppercase());
            let Some(&Variable { name, kind, .. }) = variable_named(&wanted) else {
                let failure = fail!(
                    SettingUnknown,
                    "there is no setting `{}`",
                    clean(key.get_ref(), 60)
                )
                .at(place(line));
                return Err(match nearest(&wanted, variable_names()) {
                    Some(near) => failure.hint(format!("did you mean `{}`?", file_name(near))),
                    None => failure,
                });
            };
            let Some(value) = plain(value.get_ref()) else {
                return Err(fail!(
                    SettingInvalid,
                    "`{}` cannot be a table or a date",
                    file_name(name)
                )
                .at(place(line)));
            };
            if project && !FOR_PROJECTS.contains(&name) {
                return Err(not_for_projects(name, "a project cannot set").at(place(line)));
            }
            // A project may come from someone untrusted, so it must not disable the strict gate.
            let weakens = name == "VAULT_SECURITY_STRICT" && is_true(&value) == Some(false);
            if project && weakens {
                return Err(not_for_projects(name, "a project cannot turn off").at(place(line)));
            }
            let from = if project {
                Origin::Project
            } else {
                Origin::File
            };
            self.set(name, kind, value, from(path.to_owned(), line))?;
        }
        Ok(())
    }
}

fn not_for_projects(name: &'static str, what: &str) -> Failure {
    fail!(SettingNotForProjects, "{what} `{}`", file_name(name))
    .hint(format!(
        "set it in your own config.toml, or as {name}; `vault config list --origin` shows who set what"
    ))
}

fn plain(value: &toml::de::DeValue<'_>) -> Option<String> {
    use toml::de::DeValue;
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(yes) => Some(yes.to_string()),
        DeValue::Array(members) => members
            .iter()
            .map(|member| plain(member.get_ref()))
            .collect::<Option<Vec<_>>>()
            .map(|members| members.join(",")),
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
        .map(|folder| expand(process, folder).join("config.toml"))
        .filter(|file| file.is_file());
    beside.or_else(|| {
        process
            .config_folder()
            .map(|folder| folder.join("config.toml"))
            .filter(|file| file.exists())
    })
}

/// Expands `~/` in a path to the home folder, because no shell expands the values in a file.
pub fn expand(process: &Process, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), process.home()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

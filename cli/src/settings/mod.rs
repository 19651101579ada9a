//! Settings: one table of names, layered from flags, environment and files.
//!
//! The name in a file is the variable's name in lower case without `VAULT_`. An unknown
//! name in a file is rejected, because otherwise a misspelt setting would silently have no effect.

pub mod layers;
mod table;

pub use table::SERVED_LIBRARY;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use self::table::{
    OTHER_VARIABLES, TABLE, ValueKind, is_true, mask_value, variable_named, variable_names,
};
use crate::{
    errors::{Failure, Place},
    process::Process,
    text::{clean, nearest_name},
};

/// The flag, variable or file that set a value, for messages and for the start-up log of `serve`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The flag with its hyphens, as messages print it.
    Flag(&'static str),
    Variable(&'static str),
    /// The user's file, with the line counted from 1.
    File(PathBuf, u32),
    /// The project's file, with the line counted from 1.
    Project(PathBuf, u32),
    /// Neither a flag, a variable nor a file set it, so the default of the program holds.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Variable(name) => f.write_str(name),
            Self::File(path, line) | Self::Project(path, line) => {
                write!(f, "{}:{line}", path.display())
            }
            Self::Default => f.write_str("default"),
        }
    }
}

/// The settings of this process. Loading checks the type of every value.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    values: BTreeMap<&'static str, (String, Origin)>,
    project_fault: Option<Failure>,
}

impl Settings {
    /// Returns the fault of the project's file, if it has one. The whole file is then ignored. A
    /// command that needs a setting which the project could have made stricter must fail with this
    /// fault; other commands warn.
    pub const fn project_fault(&self) -> Option<&Failure> {
        self.project_fault.as_ref()
    }

    /// Overrides the setting `name` with the value of a flag; `None` changes nothing.
    pub fn set_flag(
        &mut self,
        flag: &'static str,
        name: &'static str,
        value: Option<String>,
    ) -> Result<(), Failure> {
        let (Some(value), Some(variable)) = (value, variable_named(name)) else {
            return Ok(());
        };
        self.set_value(variable.name, variable.kind, value, Origin::Flag(flag))
    }

    /// Returns the value of the setting `name` and what set it; `None` if no layer sets it.
    pub fn with_origin(&self, name: &str) -> Option<(&str, &Origin)> {
        let (value, origin) = self.values.get(name)?;
        Some((value, origin))
    }

    /// Returns the text of a value; `None` if no layer sets it. Defaults are the caller's.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.with_origin(name).map(|(value, _)| value)
    }

    /// Returns a number, if it is set. Fails with exit 2 if it is out of the range of `T`.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.with_origin(name)
            .map(|(value, origin)| {
                value.parse().map_err(|_| {
                    fail!(SettingInvalid, "{name} is not a number in range: {value}")
                        .hint(format!("it was set by {origin}"))
                })
            })
            .transpose()
    }

    /// Returns the value of a boolean setting; `None` if no layer sets it.
    pub fn boolean(&self, name: &str) -> Option<bool> {
        // Loading the settings has already rejected all other texts.
        self.text(name).map(|value| is_true(value).unwrap_or(false))
    }

    /// Returns the members of a comma-separated list, trimmed and without empty ones.
    pub fn list(&self, name: &str) -> Vec<String> {
        self.text(name)
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .filter(|member| !member.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Finds environment variables named `VAULT_…` that nothing reads. Returns each with the
    /// setting that was probably meant, if a similar one exists.
    pub fn unknown_variables(process: &Process) -> Vec<(String, Option<&'static str>)> {
        // A misspelt variable would otherwise have no effect without any sign of it.
        let unknown = process
            .vault_variables()
            .filter(|name| variable_named(name).is_none() && !OTHER_VARIABLES.contains(name));
        unknown
            .map(|name| (name.to_owned(), nearest_name(name, variable_names())))
            .collect()
    }

    /// Returns the layer that set a value: `flag`, `environment`, `project`, `user` or `default`.
    pub fn origin_word(&self, name: &str) -> &'static str {
        match self.with_origin(name) {
            Some((_, Origin::Flag(_))) => "flag",
            Some((_, Origin::Variable(_))) => "environment",
            Some((_, Origin::Project(..))) => "project",
            Some((_, Origin::File(..))) => "user",
            Some((_, Origin::Default)) | None => "default",
        }
    }

    /// Lists every setting with its value and the layer that set it. Secrets are masked. The value
    /// is `None` if it is not set and has no default.
    pub fn setting_rows(&self) -> Vec<SettingRow> {
        let row = |name, kind, default: &str| {
            let set = self.with_origin(name);
            let default = (!default.is_empty()).then(|| default.to_owned());
            SettingRow {
                name,
                value: set.map_or(default, |(value, _)| Some(mask_value(kind, value))),
                source: set
                    .map_or(&Origin::Default, |(_, origin)| origin)
                    .to_string(),
            }
        };
        // `PORT` is set by platforms, so it is only shown if it is set.
        let port = self
            .text("PORT")
            .map(|_| row("PORT", ValueKind::Number, ""));
        let rows = TABLE
            .iter()
            .map(|known| row(known.name, known.kind, known.default));
        port.into_iter().chain(rows).collect()
    }

    fn set_value(
        &mut self,
        name: &'static str,
        kind: ValueKind,
        value: String,
        origin: Origin,
    ) -> Result<(), Failure> {
        let expected_form = match kind {
            ValueKind::Text | ValueKind::Secret | ValueKind::List => None,
            ValueKind::Number => value
                .parse::<u64>()
                .is_err()
                .then(|| "a whole number".to_owned()),
            ValueKind::Boolean => is_true(&value)
                .is_none()
                .then(|| "true, false, 1 or 0".to_owned()),
            ValueKind::OneOf(allowed) => {
                (!allowed.contains(&value.as_str())).then(|| one_of(allowed))
            }
        };
        if let Some(wanted) = expected_form {
            let failure = fail!(
                SettingInvalid,
                "{name} must be {wanted}, not `{}`",
                clean(&value, 40)
            );
            return Err(match &origin {
                Origin::File(path, line) | Origin::Project(path, line) => {
                    failure.at(Place::new(path, *line))
                }
                Origin::Flag(flag) => failure.hint(format!("it was set by {flag}")),
                Origin::Variable(_) | Origin::Default => failure,
            });
        }
        self.values.insert(name, (value, origin));
        Ok(())
    }
}

/// A setting as displayed by `vault config list`.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct SettingRow {
    /// The name of the variable.
    pub name: &'static str,
    /// The value. A secret, or a password in an address, is `********`.
    pub value: Option<String>,
    /// The flag, the variable, the file with its line, or `default`.
    pub source: String,
}

/// Joins words as a sentence lists them: `a, b or c`.
fn one_of(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        words => words.join(""),
    }
}

#[cfg(test)]
mod tests {
    use crate::errors::ErrorCode;

    use std::path::Path;

    use super::{
        layers::project_file,
        table::{MASK, file_name},
        *,
    };

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vault.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_port_that_is_meant_for_others_fails_only_where_it_is_used() {
        let process = Process::with(&[("PORT", "tcp://10.0.0.1:80")]);
        let settings = Settings::load(&process, None).unwrap();
        let error = settings.number::<u16>("PORT").unwrap_err();
        assert!(error.message.contains("PORT"), "{}", error.message);
    }

    #[test]
    fn flag_beats_variable_beats_file() {
        let (_folder, path) = file("port = 1\nbind = \"file\"\nallowed_origins = [\"a\", \"b\"]\n");
        let process = Process::with(&[("VAULT_PORT", "2"), ("VAULT_TOKEN_TTL", "5")]);
        let mut settings = Settings::load(&process, Some(&path)).unwrap();
        assert_eq!(settings.text("VAULT_PORT"), Some("2"));
        settings
            .set_flag("--port", "VAULT_PORT", Some("3".into()))
            .unwrap();
        assert_eq!(
            settings.with_origin("VAULT_PORT"),
            Some(("3", &Origin::Flag("--port")))
        );
        assert_eq!(settings.text("VAULT_BIND"), Some("file"));
        assert_eq!(settings.list("VAULT_ALLOWED_ORIGINS"), ["a", "b"]);
        assert_eq!(settings.number::<u32>("VAULT_TOKEN_TTL").unwrap(), Some(5));
    }

    #[test]
    fn a_project_stands_between_user_and_environment_and_says_little() {
        let (_one, user) =
            file("log_level = \"debug\"\nsecurity_strict = false\ntool_names = \"dotted\"\n");
        let (_two, project) = file("log_level = \"warn\"\nsecurity_strict = true\n");
        let process = Process::with(&[("VAULT_SEARCH_MODE", "text")]);
        let mut settings = Settings::load_layered(&process, Some(&user), Some(&project)).unwrap();
        settings
            .set_flag("--port", "VAULT_PORT", Some("3".into()))
            .unwrap();
        for (name, value, word) in [
            ("VAULT_LOG_LEVEL", "warn", "project"),
            ("VAULT_SECURITY_STRICT", "true", "project"),
            ("VAULT_TOOL_NAMES", "dotted", "user"),
            ("VAULT_SEARCH_MODE", "text", "environment"),
            ("VAULT_PORT", "3", "flag"),
        ] {
            let found = (settings.text(name), settings.origin_word(name));
            assert_eq!(found, (Some(value), word), "{name}");
        }
        assert_eq!(settings.origin_word("VAULT_BIND"), "default");
    }

    #[test]
    fn a_project_cannot_set_keys_addresses_places_or_weaken_the_gate() {
        for variable in TABLE {
            let value = match variable.kind {
                ValueKind::Number => "1".to_owned(),
                ValueKind::Boolean => "false".to_owned(),
                ValueKind::OneOf(allowed) => format!("\"{}\"", allowed[0]),
                ValueKind::Text | ValueKind::Secret | ValueKind::List => "\"x\"".to_owned(),
            };
            let (_folder, path) = file(&format!("{} = {value}\n", file_name(variable.name)));
            let result = Settings::load_layered(&Process::default(), None, Some(&path));
            let harmless = ["VAULT_LOG_LEVEL", "VAULT_SEARCH_MODE", "VAULT_TOOL_NAMES"];
            if harmless.contains(&variable.name) {
                let fault = result.unwrap().project_fault().cloned();
                assert!(fault.is_none(), "{}", variable.name);
            } else {
                let settings = result.unwrap();
                assert_eq!(settings.text(variable.name), None);
                let fault = settings.project_fault().unwrap();
                let code = ErrorCode::SettingNotForProjects;
                assert_eq!(fault.code, code, "{}", variable.name);
                assert_eq!(fault.place().unwrap().line, Some(1));
            }
        }
    }

    #[test]
    fn a_faulty_file_of_a_project_sets_nothing() {
        let (_user_folder, user) = file("search_mode = \"text\"\n");
        for text in [
            "tool_names = \"dotted\"\nsearch_mode = 1\n".to_owned(),
            "tool_names = \"dotted\"\nno toml".to_owned(),
            format!("tool_names = \"dotted\"\n#{}", "x".repeat(64 << 10)),
        ] {
            let (_folder, project) = file(&text);
            let process = Process::default();
            let settings = Settings::load_layered(&process, Some(&user), Some(&project)).unwrap();
            assert!(settings.project_fault().is_some(), "{text:.60}");
            assert_eq!(settings.text("VAULT_TOOL_NAMES"), None);
            assert_eq!(settings.text("VAULT_SEARCH_MODE"), Some("text"));
            // A fault in the user's own file is an error, unlike one in the file of a project.
            assert!(Settings::load(&process, Some(&project)).is_err());
        }
    }

    #[test]
    fn the_file_of_a_project_ends_at_its_root_and_below_home() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("work/project");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for place in [home.path(), &home.path().join("work"), &root] {
            std::fs::write(place.join("vault.toml"), "").unwrap();
        }
        let process = Process::at_home(home.path());
        let found = |folder: &Path| project_file(&process, folder);
        assert_eq!(found(&root.join("a/b")), Some(root.join("vault.toml")));
        std::fs::remove_file(root.join("vault.toml")).unwrap();
        assert_eq!(
            found(&root.join("a")),
            Some(home.path().join("work/vault.toml"))
        );
        std::fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(found(&root.join("a")), None, "not beyond the repository");
        assert_eq!(found(home.path()), None, "home is no project");
    }

    #[test]
    fn what_is_misspelt_is_refused_with_its_place() {
        for (text, code, line, hint) in [
            ("\npublic_ulr = \"x\"\n", "setting_unknown", 2, "public_url"),
            ("security_strict = \"ture\"", "setting_invalid", 1, ""),
            ("search_mode = \"vector\"", "setting_invalid", 1, ""),
            ("port = \"eighty\"", "setting_invalid", 1, ""),
            ("port = {}", "setting_invalid", 1, ""),
            ("a\n", "settings_invalid", 1, ""),
        ] {
            let (_folder, path) = file(text);
            let failure = Settings::load(&Process::default(), Some(&path)).unwrap_err();
            assert_eq!(failure.code.word(), code, "{text}");
            assert_eq!(failure.exit(), crate::errors::Exit::Usage);
            assert_eq!(failure.place().unwrap().line, Some(line), "{text}");
            assert!(failure.hint.unwrap_or_default().contains(hint), "{text}");
        }
    }

    #[test]
    fn a_misspelt_boolean_in_the_environment_is_refused() {
        let process = Process::with(&[("VAULT_SECURITY_STRICT", "yes")]);
        assert!(Settings::load(&process, None).is_err());
        let process = Process::with(&[("VAULT_SECURITY_STRICT", "false")]);
        let settings = Settings::load(&process, None).unwrap();
        assert_eq!(settings.boolean("VAULT_SECURITY_STRICT"), Some(false));
    }

    #[test]
    fn what_is_shown_names_each_setting_once_and_hides_secrets() {
        let process = Process::with(&[
            ("VAULT_ADMIN_PASSWORD", "a secret of some length"),
            (
                "VAULT_DATABASE_URL",
                "postgres://vault:hunter2@db/v?password=hunter3&x=1",
            ),
            ("PORT", "81"),
        ]);
        let (_folder, path) = file("token_ttl = 60\n");
        let shown = Settings::load(&process, Some(&path))
            .unwrap()
            .setting_rows();
        let all = format!("{shown:?}");
        for secret in ["a secret", "hunter2", "hunter3"] {
            assert!(!all.contains(secret), "{all}");
        }
        let row = |name: &str| {
            let found: Vec<_> = shown.iter().filter(|row| row.name == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            (
                found[0].value.as_deref().unwrap_or_default(),
                found[0].source.as_str(),
            )
        };
        assert_eq!(row("PORT"), ("81", "PORT"));
        assert_eq!(row("VAULT_ADMIN_PASSWORD").0, MASK);
        assert_eq!(
            row("VAULT_DATABASE_URL").0,
            "postgres://vault:********@db/v?password=********&x=1"
        );
        assert_eq!(row("VAULT_PORT"), ("8080", "default"));
        assert_eq!(row("VAULT_PUBLIC_URL"), ("", "default"));
        let (value, source) = row("VAULT_TOKEN_TTL");
        assert_eq!((value, source.ends_with("vault.toml:1")), ("60", true));
        assert_eq!(shown.len(), TABLE.len() + 1);
    }

    #[test]
    fn what_is_shown_as_default_is_what_holds() {
        let url = "https://vault.example".parse().unwrap();
        let config = vault_service::config::Config::new(url);
        let mut limits = config.limits;
        let limits = limits.by_variable();
        let limits = limits.map(|(name, limit)| (name, i64::from(*limit)));
        let others = [
            ("VAULT_TOKEN_TTL", config.token_ttl_seconds),
            ("VAULT_PAYMENT_GRACE_DAYS", config.hosting.grace_days),
        ];
        for (name, value) in limits.into_iter().chain(others) {
            let variable = variable_named(name).unwrap();
            assert_eq!(variable.default, value.to_string(), "{name}");
        }
        let numbers = TABLE
            .iter()
            .filter(|variable| variable.kind == ValueKind::Number);
        // The table has two more numbers, the ports.
        assert_eq!(numbers.count(), limits.len() + others.len() + 2);
    }

    #[test]
    fn a_slip_in_a_variable_is_noticed_and_a_stranger_is_not() {
        let process = Process::with(&[
            ("VAULT_PUBLIC_ULR", "x"),
            ("VAULT_LIMIT_FOO_BAR_BAZ", "x"),
            ("VAULT_NO_SETUP", "1"),
            ("VAULT_PORT", "1"),
        ]);
        assert_eq!(
            Settings::unknown_variables(&process),
            [
                ("VAULT_LIMIT_FOO_BAR_BAZ".to_owned(), None),
                ("VAULT_PUBLIC_ULR".to_owned(), Some("VAULT_PUBLIC_URL")),
            ]
        );
    }
}

//! The process: its environment variables, folders and terminals. Only this module reads
//! environment variables, once at the start, so that tests can replace them.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::IsTerminal,
    path::{Path, PathBuf},
};

use vault_library::agents::{Machine, VARIABLES};

/// Variables that coding agents set for the programs they start. If one is set, there are no
/// prompts and no animations.
const AGENT_MARKS: [&str; 15] = [
    "AI_AGENT",
    "ANTIGRAVITY_AGENT",
    "AUGMENT_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE",
    "CODEX_CI",
    "CODEX_SANDBOX",
    "CODEX_THREAD_ID",
    "COPILOT_ALLOW_ALL",
    "COPILOT_MODEL",
    "CURSOR_AGENT",
    "CURSOR_TRACE_ID",
    "GEMINI_CLI",
    "OPENCODE_CLIENT",
    "REPL_ID",
];

/// The environment variables and terminals of this process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    variables: BTreeMap<String, String>,
    environment: Vec<(OsString, OsString)>,
    home: Option<PathBuf>,
    /// The path of this program's executable file.
    program: Option<PathBuf>,
    pub stdin_is_terminal: bool,
    pub stdout_is_terminal: bool,
    pub stderr_is_terminal: bool,
    /// The width of the terminal that is standard output, in characters.
    pub stdout_columns: Option<usize>,
    /// The width of the terminal that is standard error, in characters.
    pub stderr_columns: Option<usize>,
}

impl Process {
    /// Reads the variables and terminals. A variable that is not UTF-8 counts as unset.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the environment"
    )]
    pub fn read() -> Self {
        let environment: Vec<_> = std::env::vars_os().collect();
        Self {
            variables: environment
                .iter()
                .filter_map(|(name, value)| {
                    Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
                })
                .collect(),
            environment,
            // A relative home folder would put keys into whatever folder is current.
            home: std::env::home_dir().filter(|home| home.is_absolute()),
            program: std::env::current_exe().ok(),
            stdin_is_terminal: std::io::stdin().is_terminal(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            stdout_columns: terminal_columns(std::io::stdout()),
            stderr_columns: terminal_columns(std::io::stderr()),
        }
    }

    /// Returns a variable's value. An empty value counts as unset.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns whether a variable is set and empty.
    pub fn is_empty(&self, name: &str) -> bool {
        self.variables.get(name).is_some_and(String::is_empty)
    }

    /// Returns all variables as they are, for programs that this process starts.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// Returns the names of all non-empty variables that start with `VAULT_`.
    pub fn vault_variables(&self) -> impl Iterator<Item = &str> {
        let names = self.variables.keys().map(String::as_str);
        names.filter(|name| name.starts_with("VAULT_") && self.variable(name).is_some())
    }

    /// Returns the user's home folder, if it is known.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Formats a path for people, with `~/` for the home folder.
    pub fn short_path(&self, path: &Path) -> String {
        match self.home().map(|home| path.strip_prefix(home)) {
            Some(Ok(rest)) if !rest.as_os_str().is_empty() => format!("~/{}", rest.display()),
            _ => path.display().to_string(),
        }
    }

    /// Returns the folder for the installer's starter skills: `$XDG_DATA_HOME/vault/skills`, or
    /// else `~/.local/share/vault/skills`.
    pub fn starter_dir(&self) -> Option<PathBuf> {
        Some(
            self.user_folder("XDG_DATA_HOME", ".local/share")?
                .join("vault/skills"),
        )
    }

    /// Returns the configuration folder: `$XDG_CONFIG_HOME/vault`, or else `~/.config/vault`.
    /// Relative values count as unset, as the XDG specification requires.
    pub fn config_folder(&self) -> Option<PathBuf> {
        Some(
            self.user_folder("XDG_CONFIG_HOME", ".config")?
                .join("vault"),
        )
    }

    fn user_folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let named = self.variable(variable).map(PathBuf::from);
        named
            .filter(|path| path.is_absolute())
            .or_else(|| Some(self.home()?.join(below_home)))
    }

    /// Describes this machine for the search for agents. Returns `None` without a home folder.
    pub fn describe_machine(&self, project: Option<PathBuf>) -> Option<Machine> {
        Some(Machine {
            home: self.home.clone()?,
            variables: VARIABLES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), self.variable(name)?.to_owned())))
                .collect(),
            project,
        })
    }

    /// Returns whether a coding agent started this process.
    pub fn is_run_by_agent(&self) -> bool {
        AGENT_MARKS.iter().any(|mark| self.variable(mark).is_some())
    }

    /// Returns whether a CI system started this process.
    pub fn is_run_by_ci(&self) -> bool {
        // Some tools set `CI=false` to have programs behave as outside of CI.
        self.variable("CI").is_some_and(|value| value != "false")
    }

    /// Returns whether to use colour on a stream, according to `NO_COLOR`, `CLICOLOR_FORCE`,
    /// `TERM=dumb` and whether the stream is a terminal.
    pub fn wants_colour(&self, stream_is_terminal: bool) -> bool {
        if self.variable("NO_COLOR").is_some() {
            return false;
        }
        let is_forced = self
            .variable("CLICOLOR_FORCE")
            .is_some_and(|value| value != "0");
        is_forced || (stream_is_terminal && self.variable("TERM") != Some("dumb"))
    }

    /// Finds the executable file that a shell would start under this name, in the folders of
    /// `PATH`.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        std::env::split_paths(self.variable("PATH")?)
            .map(|folder| folder.join(name))
            .find(|file| {
                file.metadata()
                    // Skip files that are not executable, as a shell does.
                    .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
            })
    }

    /// Returns the path of this program, for commands that are printed; `None` if the user's shell
    /// finds this program as `vault`.
    pub fn program_by_path(&self) -> Option<&Path> {
        let found = self.find_program("vault");
        let found = found.and_then(|found| found.canonicalize().ok());
        let program = self.program.as_deref()?;
        // Another `vault` may be first in `PATH`, and might not know the commands of this one.
        (found != program.canonicalize().ok()).then_some(program)
    }

    /// Returns the machine's host name. It labels the device and the OAuth client of this machine.
    pub fn host_name(&self) -> Option<String> {
        self.variable("HOSTNAME").map(str::to_owned).or_else(|| {
            // Ask the kernel first: the file may already have a name that is used from the next
            // start on.
            let mut files = ["/proc/sys/kernel/hostname", "/etc/hostname"].iter();
            let text = files.find_map(|file| std::fs::read_to_string(file).ok())?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        })
    }

    /// Creates a process with this home, no variables and no terminal.
    #[cfg(test)]
    pub fn at_home(home: &Path) -> Self {
        Self {
            home: Some(home.to_owned()),
            ..Self::default()
        }
    }

    /// Creates a process with these variables and no terminal.
    #[cfg(test)]
    pub fn with(variables: &[(&str, &str)]) -> Self {
        Self {
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Self::default()
        }
    }
}

/// Returns the width of a terminal. `None` for anything else, and for a terminal that does not
/// report it.
fn terminal_columns(stream: impl std::os::fd::AsFd) -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(stream)?;
    Some(width.0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_the_variables_then_the_stream() {
        for (variables, terminal, wanted) in [
            (&[][..], true, true),
            (&[], false, false),
            (&[("NO_COLOR", "1")], true, false),
            (&[("NO_COLOR", "")], true, true),
            (&[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], true, false),
            (&[("CLICOLOR_FORCE", "1")], false, true),
            (&[("CLICOLOR_FORCE", "0")], false, false),
            (&[("TERM", "dumb")], true, false),
        ] {
            let wants = Process::with(variables).wants_colour(terminal);
            assert_eq!(wants, wanted, "{variables:?} on a terminal: {terminal}");
        }
    }

    #[test]
    fn a_relative_configuration_home_is_ignored() {
        let mut process = Process::with(&[("XDG_CONFIG_HOME", "relative")]);
        assert_eq!(process.config_folder(), None);
        process.home = Some("/home/ann".into());
        assert_eq!(
            process.config_folder(),
            Some("/home/ann/.config/vault".into())
        );
        let process = Process::with(&[("XDG_CONFIG_HOME", "/conf")]);
        assert_eq!(process.config_folder(), Some("/conf/vault".into()));
    }

    #[test]
    fn the_program_is_named_by_its_path_unless_the_shell_finds_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let make = |place: &str| {
            let file = folder.path().join(place).join("vault");
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, place).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            file
        };
        let (mine, other) = (make("tools"), make("bin"));
        for (found, named) in [(&mine, None), (&other, Some(mine.as_path()))] {
            let path = found.parent().unwrap().to_str().unwrap();
            let mut process = Process::with(&[("PATH", path)]);
            process.program = Some(mine.clone());
            assert_eq!(process.program_by_path(), named);
        }
    }

    #[test]
    fn agents_and_build_servers_are_known_by_their_marks() {
        assert!(Process::with(&[("CLAUDECODE", "1")]).is_run_by_agent());
        assert!(!Process::with(&[("CLAUDECODE", "")]).is_run_by_agent());
        assert!(Process::with(&[("CI", "true")]).is_run_by_ci());
        assert!(!Process::with(&[("CI", "false")]).is_run_by_ci());
    }
}

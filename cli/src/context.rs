//! The context of a command: everything that it needs from outside, passed as one value. Settings
//! and passphrases are loaded when they are first used.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
    sync::Arc,
};

use vault_library::{Vault, VaultError, VaultPaths};
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::{
    errors::Failure,
    flags::Global,
    output::{Ui, Warning, clean, shell_path},
    passphrases::KeyPassphrases,
    process::Process,
    settings::{
        Settings,
        layers::{self, expand_home, user_file},
    },
};

/// The environment of one run of a command.
#[derive(Debug)]
pub struct Context {
    /// What the operating system gave this process: environment variables, program path, terminals.
    pub process: Process,
    /// The flags that every command accepts, such as `--vault` and `--json`.
    pub global: Global,
    /// Prints results, notes and questions on standard output and standard error.
    pub ui: Ui,
    /// Returns the complete clap command, for manual pages and completion scripts.
    pub command_line: fn() -> clap::Command,
    settings: OnceCell<Result<Settings, Failure>>,
    passphrases: OnceCell<Arc<KeyPassphrases>>,
    /// Set once the permissions of the vault's folders were checked.
    checked: OnceCell<()>,
    /// Set once the warning about an unusable `VAULT_DB_PATH` was printed.
    index_checked: OnceCell<()>,
}

impl Context {
    /// Creates the context of one run. Settings and passphrases are read when they are first
    /// needed.
    pub const fn new(
        process: Process,
        global: Global,
        ui: Ui,
        command_line: fn() -> clap::Command,
    ) -> Self {
        Self {
            process,
            global,
            ui,
            command_line,
            settings: OnceCell::new(),
            passphrases: OnceCell::new(),
            checked: OnceCell::new(),
            index_checked: OnceCell::new(),
        }
    }

    /// Returns the user's folder of keys, tokens and settings. Fails if neither `XDG_CONFIG_HOME`
    /// nor a home folder is known.
    pub fn config_folder(&self) -> Result<PathBuf, Failure> {
        self.process.config_folder().ok_or_else(|| {
            fail!(NoHome, "there is no home folder to keep keys in")
                .hint("set HOME or XDG_CONFIG_HOME")
        })
    }

    /// Returns the settings and loads them on the first call. The environment overrides the
    /// project's file, which overrides the user's file. A file named by `--config` replaces both
    /// files.
    pub fn settings(&self) -> Result<&Settings, Failure> {
        self.settings
            .get_or_init(|| {
                // A named file replaces both others, so that a script gets the same settings in
                // every folder.
                if let Some(file) = &self.global.config {
                    return Settings::load(&self.process, Some(file));
                }
                // There is no current folder if it was deleted, and then no project either.
                let project = std::env::current_dir()
                    .ok()
                    .and_then(|folder| layers::project_file(&self.process, &folder));
                let user = user_file(&self.process);
                Settings::load_layered(&self.process, user.as_deref(), project.as_deref())
            })
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Returns whether security findings of the gate (scanner) block a skill, which is the default.
    /// Fails if the project's settings are faulty, because they could make the gate stricter.
    pub fn is_strict(&self) -> Result<bool, Failure> {
        let settings = self.settings()?;
        if let Some(fault) = settings.project_fault() {
            return Err(fault.clone());
        }
        Ok(settings.boolean("VAULT_SECURITY_STRICT").unwrap_or(true))
    }

    /// Warns if the project's settings are faulty and were ignored by this command.
    pub fn warn_about_project(&self) {
        // Look only at settings that are already loaded: a command that did not need them must not
        // warn.
        let settings = self.settings.get().and_then(|loaded| loaded.as_ref().ok());
        if let Some(fault) = settings.and_then(Settings::project_fault) {
            let text = format!("the project's settings were ignored: {}", fault.message);
            let place = fault.place();
            self.ui.warn(Warning {
                path: place.map(|place| place.path.clone()),
                line: place.and_then(|place| place.line),
                hint: fault.hint.clone(),
                ..Warning::new(fault.code.word(), text)
            });
        }
    }

    /// Returns the paths of the vault of this run and of its keys, by the flags and settings.
    pub fn vault_paths(&self) -> Result<VaultPaths, Failure> {
        self.vault_paths_by(self.settings()?)
    }

    fn vault_paths_by(&self, settings: &Settings) -> Result<VaultPaths, Failure> {
        let root = match self.named_vault(settings) {
            Some(path) => path,
            None => match self.process.home() {
                Some(home) => home.join(".vault"),
                None => {
                    return Err(
                        fail!(NoHome, "there is no home folder to keep the vault in")
                            .hint("set HOME, or name a folder with --vault"),
                    );
                }
            },
        };
        let mut paths = self.paths_at(&root, settings)?;
        if let Some(index) = paths.drop_unusable_index() {
            // The paths are computed several times in a run, but one warning is enough.
            self.index_checked.get_or_init(|| {
                let index = clean(&index.display().to_string(), 200);
                let text = format!("VAULT_DB_PATH is not used: no file can be at {index}");
                self.ui.warn(Warning::new("index_unusable", text));
            });
        }
        Ok(paths)
    }

    /// Returns the vault folder that `--vault` or `VAULT_STORAGE_PATH` names, if one of them is
    /// set.
    pub fn named_vault(&self, settings: &Settings) -> Option<PathBuf> {
        let set = || settings.text("VAULT_STORAGE_PATH");
        let flag = self.global.vault.clone();
        flag.or_else(|| set().map(|path| expand_home(&self.process, path)))
    }

    /// Fails with exit 2 if `--vault` names a folder that does not exist. A typo would otherwise
    /// read as an empty vault.
    pub fn require_named_vault(&self) -> Result<(), Failure> {
        match &self.global.vault {
            Some(path) if !path.is_dir() => {
                let path = clean(&path.display().to_string(), 200);
                Err(fail!(VaultFolderMissing, "no such vault folder: {path}")
                    .hint("check --vault; add, install, setup and link create a new vault there"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the paths of the vault at `root` and its keys under the given settings. A server
    /// passes its own settings, because it does not read the user's file.
    pub fn paths_at(&self, root: &Path, settings: &Settings) -> Result<VaultPaths, Failure> {
        let root =
            std::path::absolute(root).map_err(|error| Failure::io("resolving", root, &error))?;
        let mut paths = VaultPaths::new(root, self.config_folder()?);
        let index = settings.text("VAULT_DB_PATH");
        paths.index = index.map(|path| expand_home(&self.process, path));
        paths.ssh_agent = self.process.variable("SSH_AUTH_SOCK").map(PathBuf::from);
        Ok(paths)
    }

    /// Opens the vault of this run. Fails if it does not exist.
    pub fn open_vault(&self) -> Result<Vault, Failure> {
        self.existing_vault()?.ok_or_else(|| {
            let place = self.vault_paths().map_or_else(
                |_| String::new(),
                |paths| format!(" at {}", paths.root.display()),
            );
            fail!(NoVault, "there is no vault{place} yet")
                .hint("vault add <folder> creates one with its first skill")
        })
    }

    /// Opens the vault of this run if it exists; never creates one. Warns if other users can write
    /// to its folders.
    pub fn existing_vault(&self) -> Result<Option<Vault>, Failure> {
        match Vault::open(
            self.vault_paths()?,
            Arc::new(SystemClock),
            Arc::new(SystemRandom),
        ) {
            Err(VaultError::Missing(_)) => Ok(None),
            vault => {
                let vault = vault?.with_passphrases(self.key_passphrases()?);
                // A run may open the vault several times, but one warning is enough.
                self.checked.get_or_init(|| self.warn_about_folders(&vault));
                Ok(Some(vault))
            }
        }
    }

    fn warn_about_folders(&self, vault: &Vault) {
        if let Err(error) = vault.check_folders() {
            self.ui.warn(Warning::from(&Failure::from(error)));
        }
    }

    /// Opens the vault of this run. Creates it with its keys if it does not exist.
    pub fn vault_or_new(&self) -> Result<Vault, Failure> {
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let passphrases = self.key_passphrases()?;
        let vault = Vault::open_or_create_with(self.vault_paths()?, clock, random, passphrases)?;
        Ok(vault)
    }

    /// Opens the vault of this run to link other vaults into it. If it does not exist, creates it
    /// without keys: such a vault can install linked skills but sign none of its own.
    pub fn vault_for_links(&self) -> Result<Vault, Failure> {
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let passphrases = self.key_passphrases()?;
        let vault =
            Vault::open_or_create_for_links(self.vault_paths()?, clock, random, passphrases)?;
        Ok(vault)
    }

    /// Formats a command of this program for the user to run. If the shell would not find this
    /// program as `vault`, the command has its path. `at_home` shortens the home folder to `~`.
    pub fn own_command(&self, at_home: bool, arguments: impl std::fmt::Display) -> String {
        let Some(program) = self.process.program_by_path() else {
            return format!("vault {arguments}");
        };
        let path = if at_home {
            self.process.short_path(program)
        } else {
            program.display().to_string()
        };
        format!("{} {arguments}", shell_path(path))
    }

    /// Returns the source of passphrases for key files. It asks only if this run may ask questions.
    pub fn key_passphrases(&self) -> Result<Arc<KeyPassphrases>, Failure> {
        let file = self.settings()?.text("VAULT_KEY_PASSPHRASE_FILE");
        let file = file.map(|path| expand_home(&self.process, path));
        // There is one object per run, because it remembers the passphrase for new key files.
        let interaction = self.ui.may_ask().then(|| self.ui.interaction().clone());
        let made = || Arc::new(KeyPassphrases::new(file, interaction));
        Ok(Arc::clone(self.passphrases.get_or_init(made)))
    }

    /// Fails if `--offline` forbids network access.
    pub fn require_network(&self) -> Result<(), Failure> {
        if self.global.offline {
            return Err(fail!(
                Offline,
                "this command needs the network, and --offline is set"
            )
            .hint("run it without --offline"));
        }
        Ok(())
    }

    /// Runs a future to completion on this thread, with a runtime of its own.
    #[expect(
        clippy::unused_self,
        reason = "reads as part of the run that it belongs to"
    )]
    pub fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| fail!(Io, "cannot start the event loop: {error}"))?;
        let result = runtime.block_on(work);
        // A blocking task may still be reading standard input. Do not wait for it.
        runtime.shutdown_background();
        result
    }
}

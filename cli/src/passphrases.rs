//! Passphrases of key files, recovery files and backups: from the file that
//! `VAULT_KEY_PASSPHRASE_FILE` names, or else from a question at a terminal.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use vault_library::keys::Passphrases;
use zeroize::Zeroizing;

use crate::{
    errors::Failure,
    output::{Answer, Interaction, Ui, is_cancelled, print_notice},
};

/// Maximum size of a passphrase file, in bytes.
const MAX_BYTES: u64 = 4096;

/// The source of passphrases in this run.
#[derive(Debug)]
pub struct KeyPassphrases {
    /// The file that `VAULT_KEY_PASSPHRASE_FILE` names.
    file: Option<PathBuf>,
    /// Asks the user at a terminal; `None` if no question may be asked.
    interaction: Option<Interaction>,
    /// The passphrase that encrypts new key files of this run. Set by
    /// [`KeyPassphrases::protect_with`], or by the first passphrase that was given for an existing
    /// key.
    new: Mutex<Option<Zeroizing<String>>>,
}

impl KeyPassphrases {
    /// Creates the source: this file, or else questions through `interaction`.
    pub const fn new(file: Option<PathBuf>, interaction: Option<Interaction>) -> Self {
        Self {
            file,
            interaction,
            new: Mutex::new(None),
        }
    }

    /// Returns the passphrase for a new file, which `what` names: from the passphrase file, or
    /// asked for twice. Fails if there is neither that file nor a terminal.
    pub fn choose_passphrase(&self, ui: &Ui, what: &str) -> Result<Zeroizing<String>, Failure> {
        if let Some(text) = self
            .read_file()
            .map_err(|error| unreadable_passphrase(&error))?
        {
            return Ok(text);
        }
        let question = format!("Passphrase for {what}:");
        ui.new_passphrase(&question)
    }

    /// Sets the passphrase that encrypts the key files which this run creates.
    pub fn protect_with(&self, passphrase: Zeroizing<String>) {
        *self.new.lock().unwrap_or_else(PoisonError::into_inner) = Some(passphrase);
    }

    /// Reads the first line of the file that the variable names.
    fn read_file(&self) -> io::Result<Option<Zeroizing<String>>> {
        let Some(path) = &self.file else {
            return Ok(None);
        };
        let named = |error: io::Error| {
            let path = path.display();
            io::Error::new(error.kind(), format!("reading {path} failed: {error}"))
        };
        let length = std::fs::metadata(path).map_err(named)?.len();
        // A passphrase is short, so a longer file is the wrong one.
        if length > MAX_BYTES {
            return Err(named(io::Error::other("it is longer than 4 KiB")));
        }
        // Allocate the whole buffer at once: growing it would leave copies of the passphrase in
        // memory.
        let mut text = Zeroizing::new(String::with_capacity(usize::try_from(length).unwrap_or(0)));
        let file = std::fs::File::open(path).map_err(named)?;
        // Never read beyond the buffer, even if the file grows meanwhile.
        io::Read::read_to_string(&mut io::Read::take(file, length), &mut text).map_err(named)?;
        // Editors end the line with a newline, which is not part of the passphrase.
        let end = text.find(['\r', '\n']).unwrap_or(text.len());
        text.truncate(end);
        if text.is_empty() {
            return Err(named(io::Error::other("its first line is empty")));
        }
        Ok(Some(text))
    }
}

impl Passphrases for KeyPassphrases {
    fn unlock(&self, path: &Path) -> io::Result<Option<Zeroizing<String>>> {
        let given = match (self.read_file()?, &self.interaction) {
            (Some(text), _) => Some(text),
            (None, Some(interaction)) => {
                let question = format!("Passphrase of {}:", path.display());
                Some(convert_answer(interaction.ask_secret(&question))?)
            }
            (None, None) => None,
        };
        // Remember the passphrase, so that a key that replaces this one is encrypted with it too.
        let mut new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        if new.is_none() {
            new.clone_from(&given);
        }
        Ok(given)
    }

    fn protect(&self) -> io::Result<Option<Zeroizing<String>>> {
        let new = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        match &*new {
            Some(passphrase) => Ok(Some(passphrase.clone())),
            None => self.read_file(),
        }
    }

    fn agent_is_slow(&self, socket: &Path, key: &str, waited: Duration) {
        let (socket, seconds) = (socket.display(), waited.as_secs());
        let notice = format!(
            "The SSH agent at {socket} has not answered for {seconds} s. It was asked to sign with \
             the key {key}: does it wait for your confirmation?"
        );
        match &self.interaction {
            Some(interaction) => interaction.without_bars(|| print_notice(&notice)),
            None => print_notice(&notice),
        }
    }
}

/// Converts the answer to a question. A cancelled question becomes `ErrorKind::Interrupted`, so
/// that the command can tell it from other errors after the library has passed it on.
fn convert_answer<T>(answer: Answer<T>) -> io::Result<T> {
    answer.map_err(|error| {
        if is_cancelled(&error) {
            io::Error::new(io::ErrorKind::Interrupted, "interrupted")
        } else {
            io::Error::other(error)
        }
    })
}

/// Creates the failure for a passphrase that could not be read or was not entered.
pub fn unreadable_passphrase(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::Interrupted {
        return fail!(Interrupted, "interrupted");
    }
    fail!(KeyLocked, "cannot read the passphrase: {error}")
        .hint("set VAULT_KEY_PASSPHRASE_FILE to a file whose first line is the passphrase")
}

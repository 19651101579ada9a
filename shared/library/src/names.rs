//! The names that a new one may be taken for: those of a vault's skills and of the skills of linked vaults.
//!
//! To list a folder of thousands takes longer than everything else that one more skill needs. So who adds one keeps the names in
//! `index.db.names`:
//!
//! ```text
//! magic, names, a seal, more names, a seal, ...        each ended by `/`, which no name holds
//! a seal: `=`, evidence, `=`, SHA-256 of everything from the seal before it (or from the beginning) up to here, both in hexadecimal
//! ```
//! It counts while its last seal carries the evidence of now: the generation number and looks at the folders that hold the names.
//! A link that was put by hand in the very tick of the file system's clock in which the vault put one is not seen before the folder
//! changes again; what is lost by that is a warning about its name. Without the file, or with a damaged or foreign one, the folders
//! are listed.

use std::path::PathBuf;

use vault_skill::gate::names::{Known, Names};
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

use crate::disk::{self, FileError};
use crate::installed::place::Evidence;
use crate::vault::Vault;

/// Changes with the format.
const MAGIC: &str = "=vltnam1/";
/// The largest file that is read or written: some 100,000 names.
const MAX_FILE: usize = 4 << 20;
/// Seals of a file that is written to at its end; then it is written anew.
const MAX_SEALS: usize = 1_000;
/// Names of one folder that are read.
const MAX_NAMES: usize = 20_000;
/// Linked vaults whose names are read.
const MAX_LINKS: usize = 256;

/// Where the names of a vault are, and what tells that they are the same as before.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    file: PathBuf,
    skills: PathBuf,
    links: PathBuf,
    /// `None` while a writer is at work.
    evidence: Option<Digest>,
}

impl Place {
    /// As it is now.
    pub(crate) fn of(vault: &Vault) -> Self {
        let generation = vault.generation().ok();
        let generation = generation.filter(|generation| generation.is_multiple_of(2));
        Self {
            file: file(vault),
            skills: vault.skills(),
            links: vault.paths().root.join("links"),
            evidence: generation.and_then(|generation| evidence(vault, generation)),
        }
    }
}

/// What tells that the names are those of this generation; `None` where something of it can't be read.
pub(crate) fn evidence(vault: &Vault, generation: u64) -> Option<Digest> {
    Some(Evidence::of_places(vault, generation)?.digest())
}

fn file(vault: &Vault) -> PathBuf {
    vault.paths().index_with(".names")
}

/// The names of one moment, and those that were added to them.
#[derive(Debug)]
pub(crate) struct Book {
    /// As in the file.
    text: String,
    /// How much of it is in the file.
    kept: usize,
    /// Where its last seal begins; the beginning where there is none.
    sealed: usize,
    seals: usize,
    evidence: Option<Digest>,
    quick: Option<Names>,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            text: MAGIC.to_owned(),
            kept: 0,
            sealed: 0,
            seals: 0,
            evidence: None,
            quick: None,
        }
    }
}

impl Book {
    /// From the file, or else from the folders.
    pub(crate) fn read(place: &Place) -> Self {
        Self::from_file(place).unwrap_or_else(|| Self::from_folders(place))
    }

    fn from_file(place: &Place) -> Option<Self> {
        let bytes = disk::read(&place.file, MAX_FILE as u64).ok()??;
        let text = String::from_utf8(bytes).ok()?;
        if !text.starts_with(MAGIC) {
            return None;
        }
        let mut book = Self {
            evidence: Some(place.evidence?),
            kept: text.len(),
            ..Self::default()
        };
        let (mut from, mut last) = (MAGIC.len() - 1, "");
        while let Some(found) = text[from..].find("/=") {
            let at = from + found + 1;
            let (said, seal) = text[at + 1..].split_once('/')?.0.split_once('=')?;
            let covered = &text[book.sealed..=at + 1 + said.len()];
            if Digest::of(covered.as_bytes()).to_string() != seal {
                return None;
            }
            (book.sealed, book.seals, last) = (at, book.seals + 1, said);
            from = at + 1 + said.len() + 1 + seal.len();
        }
        // The seal is the last that there is, and speaks of now.
        let is_now = from + 1 == text.len() && last == place.evidence?.to_string();
        book.text = text;
        is_now.then_some(book)
    }

    fn from_folders(place: &Place) -> Self {
        let mut folders = vec![place.skills.clone()];
        // What cannot be listed holds no name that anybody sees.
        let _unlisted = disk::each_name(&place.links, MAX_LINKS, |link| {
            folders.push(place.links.join(link).join("skills"));
        });
        let mut book = Self {
            evidence: place.evidence,
            ..Self::default()
        };
        for folder in folders {
            let _unlisted = disk::each_name(&folder, MAX_NAMES, |name| book.add(name));
        }
        book
    }

    pub(crate) fn add(&mut self, name: &str) {
        // No skill has such a name; in the file it would pass for a seal.
        if name.starts_with('=') {
            return;
        }
        if let Some(quick) = &mut self.quick {
            quick.add(name);
        }
        self.text.push_str(name);
        self.text.push('/');
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let all = self.text.split_terminator('/');
        all.filter(|name| !name.starts_with('='))
    }

    /// The first, by the alphabet, of the names that this one is taken for; `many` where it will be asked for others too.
    pub(crate) fn confusable(&mut self, name: &str, many: bool) -> Option<String> {
        if !many {
            let name = Known::new(name);
            let taken = self.names().filter(|other| name.is_confusable_with(other));
            return taken.min().map(str::to_owned);
        }
        if self.quick.is_none() {
            let mut quick = Names::default();
            for name in self.names() {
                quick.add(name);
            }
            self.quick = Some(quick);
        }
        let quick = self.quick.as_ref()?;
        quick.confusable(name).map(str::to_owned)
    }

    /// Keeps the names with one that was just added by a change, where nothing else has changed since they were read. `before` and
    /// `after` are the evidence at the beginning and at the end of the change. Failing to costs the next one a listing.
    pub(crate) fn keep(
        &mut self,
        vault: &Vault,
        name: &SkillName,
        before: Option<Digest>,
        after: Option<Digest>,
    ) {
        let Some(after) = after else { return };
        if before.is_none() || self.evidence != before {
            return;
        }
        if self.text.len() > MAX_FILE {
            return;
        }
        if self.kept == 0 || self.seals >= MAX_SEALS {
            let names: String = self.names().flat_map(|name| [name, "/"]).collect();
            (self.kept, self.sealed, self.seals) = (0, 0, 0);
            self.text = format!("{MAGIC}{names}");
        }
        self.add(name.as_str());
        self.seal(after);
        if let Err(cause) = self.write(vault) {
            tracing::debug!(%cause, "the names of the skills can't be kept");
        }
    }

    fn seal(&mut self, evidence: Digest) {
        let begins = self.text.len();
        self.text.push_str(&format!("={evidence}="));
        let digest = Digest::of(&self.text.as_bytes()[self.sealed..]);
        self.text.push_str(&format!("{digest}/"));
        self.sealed = begins;
        self.seals += 1;
        self.evidence = Some(evidence);
    }

    fn write(&mut self, vault: &Vault) -> Result<(), FileError> {
        let path = file(vault);
        if self.kept > 0 {
            disk::append(&path, &self.text[self.kept..])?;
        } else {
            let scratch = vault.scratch()?;
            let aside = vault.beside_the_index(&scratch);
            disk::replace_sealed(&path, self.text.as_bytes(), &aside)?;
        }
        self.kept = self.text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    /// A place whose folders hold these names, and whose file these bytes.
    fn place(folder: &std::path::Path, text: &str, now: &str) -> Place {
        let place = Place {
            file: folder.join("names"),
            skills: folder.join("skills"),
            links: folder.join("links"),
            evidence: Some(digest(now)),
        };
        std::fs::create_dir_all(&place.skills).unwrap();
        std::fs::write(place.skills.join("listed"), "").unwrap();
        std::fs::write(&place.file, text).unwrap();
        place
    }

    fn names(book: &Book) -> Vec<&str> {
        book.names().collect()
    }

    fn written() -> Book {
        let mut book = Book::default();
        book.add("one");
        book.add("two");
        book.add("=three");
        book.seal(digest("then"));
        book.add("four");
        book.seal(digest("now"));
        book
    }

    #[test]
    fn what_was_written_is_read_while_it_is_of_now() {
        let folder = tempfile::tempdir().unwrap();
        let text = written().text;
        let read = |text: &str, now: &str| {
            let book = Book::read(&place(folder.path(), text, now));
            assert_eq!(book.evidence, Some(digest(now)));
            (names(&book).join(" "), book.kept)
        };
        assert_eq!(read(&text, "now"), ("one two four".to_owned(), text.len()));
        // What is not of now is listed, whatever an earlier seal says.
        for other in ["then", "later"] {
            assert_eq!(read(&text, other), ("listed".to_owned(), 0), "{other}");
        }
        let mut busy = place(folder.path(), &text, "now");
        busy.evidence = None;
        assert_eq!(names(&Book::read(&busy)), ["listed"]);
    }

    #[test]
    fn a_file_that_is_damaged_or_cut_short_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let text = written().text;
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            for damaged in [&changed, &text[..at]] {
                let book = Book::read(&place(folder.path(), damaged, "now"));
                assert_eq!((names(&book), book.kept), (vec!["listed"], 0), "{damaged}");
            }
        }
        let more = format!("{text}five/");
        let book = Book::read(&place(folder.path(), &more, "now"));
        assert_eq!(names(&book), ["listed"]);
    }
}

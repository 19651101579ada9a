//! A skill on trial: one agent reads it while a command runs, and the vault never holds it.
//!
//! ```text
//! <config>/trying/<id>/pdf          the files
//! <config>/trying/<id>/record.json  what was made elsewhere; written first
//! ~/.claude/skills/pdf              -> <config>/trying/<id>/pdf
//! ```
//! The folder `<id>` is locked in the kernel while the command runs. What a killed command left
//! behind is therefore known without a clock, and [`end_abandoned_trials`] removes it. Only links
//! into the trial's own folder and empty folders are ever removed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vault_format::bundle::File;
use vault_format::name::SkillName;

use crate::disk::scratch::{Scratch, take_abandoned};
use crate::disk::{self, FileError, HeldPath, Kind, Location};
use crate::store;
use crate::vault::folder::PrivateFolder;
use crate::vault::keys::KeyError;

/// The folder of all trials, below the trust folder.
const TRYING: &str = "trying";
const RECORD: &str = "record.json";
/// Maximum size of a record, in bytes. It has a few paths, each of at most 4 KiB.
const MAX_RECORD: u64 = 1 << 20;

/// Error of starting or ending a trial.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The agent's folder has an entry of the skill's name. It is never replaced.
    #[error("{} exists", disk::displayable_path(.0))]
    Taken(PathBuf),
    /// The trust folder cannot be used.
    #[error(transparent)]
    TrustFolder(#[from] KeyError),
    /// A file or folder could not be made or removed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What a trial made outside of its own folder.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Record {
    /// The link in the agent's folder; absent if none was made.
    link: Option<PathBuf>,
    /// The link's target.
    target: PathBuf,
    /// The folders that were missing before, the outermost first.
    folders: Vec<PathBuf>,
}

/// A skill that an agent reads. Dropping it ends the trial.
#[derive(Debug)]
pub struct Trial {
    /// `None` once the trial has ended.
    scratch: Option<Scratch>,
    record: Record,
}

impl Trial {
    /// Writes the files of a skill into a private folder and links them into `root`, a folder from
    /// which an agent reads skills. Creates missing folders. Fails if `root` has an entry of this
    /// name, and removes all that it made then.
    ///
    /// `config` is the trust folder.
    pub fn start(
        config: &Path,
        root: &Path,
        name: &SkillName,
        files: &[File],
    ) -> Result<Self, TrialError> {
        let trying = PrivateFolder::new(config, TRYING);
        let mut folders = missing_folders(config)?;
        folders.push(trying.path());
        folders.extend(missing_folders(root)?);
        trying.ensure_exists()?;
        let scratch = Scratch::new(&HeldPath::new(trying.path()))?;
        let (skill, at) = (
            scratch.path().join(name.as_str()),
            scratch.path().join(RECORD),
        );
        let mut trial = Self {
            scratch: Some(scratch),
            record: Record {
                link: None,
                target: skill.path(),
                folders,
            },
        };
        let link = root.join(name.as_str());
        if disk::kind_at(&link)?.is_some() {
            return Err(TrialError::Taken(link));
        }
        trial.record.link = Some(link.clone());
        let text = serde_json::to_string(&trial.record);
        // JSON has no form for a path that is not UTF-8.
        let text = text.map_err(|cause| FileError::new("record", &link, cause))?;
        disk::write_unflushed(&at, &text)?;
        store::copy_out(&skill, files)?;
        disk::make_dirs(root, 0o755)?;
        match disk::new_link(&link, &skill.path()) {
            Ok(()) => Ok(trial),
            // Another program was faster. Its entry is not this trial's, so the record's target
            // keeps it.
            Err(error) if error.cause.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(TrialError::Taken(link))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the link in the agent's folder; `None` if the trial ended before it made one.
    pub fn link(&self) -> Option<&Path> {
        self.record.link.as_deref()
    }

    /// Ends the trial: removes the link, the files and the folders that it made. Tries all of it
    /// and returns the first error.
    pub fn end(mut self) -> Result<(), TrialError> {
        Ok(self.remove_all()?)
    }

    fn remove_all(&mut self) -> Result<(), FileError> {
        let Some(scratch) = self.scratch.take() else {
            return Ok(());
        };
        let unlinked = match &self.record.link {
            // A program may have put something else there in the meantime.
            Some(link) => match disk::link_target(link) {
                Ok(Some(target)) if target == self.record.target => {
                    disk::remove_file(link).map(drop)
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            },
            None => Ok(()),
        };
        // First while the record is still there, so that a kill at any step leaves at most an empty
        // trust folder.
        let agents_folders = self.remove_empty_folders();
        drop(scratch);
        let all_folders = self.remove_empty_folders();
        unlinked.and(agents_folders).and(all_folders)
    }

    /// Removes the folders that the trial made. One with content stays: another trial or program
    /// uses it.
    fn remove_empty_folders(&self) -> Result<(), FileError> {
        let folders = self.record.folders.iter().rev();
        let removed: Vec<_> = folders.map(disk::remove_empty).collect();
        removed.into_iter().collect()
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // Errors are ignored: the next command of vault tries again.
        let _best_effort = self.remove_all();
    }
}

/// Ends the trials whose commands were killed, and returns the links that they had. Call it when a
/// command starts. Errors are ignored, because the next command tries again.
pub fn end_abandoned_trials(config: &Path) -> Vec<PathBuf> {
    let trying = config.join(TRYING);
    // Nearly always there is nothing. A link in its place is not followed.
    if !matches!(disk::kind_at(&trying), Ok(Some(Kind::Dir))) {
        return Vec::new();
    }
    let abandoned = take_abandoned(&HeldPath::new(&trying)).unwrap_or_default();
    let ended = abandoned.into_iter().filter_map(|scratch| {
        let bytes = disk::read(&scratch.path().join(RECORD), MAX_RECORD);
        let record: Option<Record> = bytes
            .ok()
            .flatten()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let folder = scratch.path().path();
        let record = record
            // Whatever a record says, only a link into its own folder is a trial's.
            .filter(|record| record.target.starts_with(&folder))
            .unwrap_or_default();
        let link = record.link.clone();
        drop(Trial {
            scratch: Some(scratch),
            record,
        });
        link
    });
    let ended = ended.collect();
    // A trial that was killed before it wrote its record, or after it removed it, may have made
    // these.
    for folder in [trying.as_path(), config] {
        let _best_effort = disk::remove_empty(folder);
    }
    ended
}

/// Returns those of a folder and the folders above it that do not exist, the outermost first.
fn missing_folders(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut missing = Vec::new();
    for above in folder.ancestors().filter(|above| *above != Path::new("")) {
        if disk::kind_at(above)?.is_some() {
            break;
        }
        missing.insert(0, above.to_owned());
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;
    use vault_format::manifest::Mode;
    use vault_testing::assert_matches;

    use super::*;

    fn files() -> Vec<File> {
        let file = |path: &str, mode, text: &str| File {
            path: path.parse().unwrap(),
            mode,
            bytes: text.into(),
        };
        vec![
            file("SKILL.md", Mode::Plain, "---\nname: pdf\n---\n"),
            file("scripts/run.sh", Mode::Executable, "#!/bin/sh\n"),
        ]
    }

    fn start(home: &TempDir) -> Result<Trial, TrialError> {
        let (config, root) = (
            home.path().join(".config/vault"),
            home.path().join(".a/skills"),
        );
        Trial::start(&config, &root, &"pdf".parse().unwrap(), &files())
    }

    /// Leaves the trial as a killed process does: with its files, and without its lock.
    fn kill(mut trial: Trial) {
        let scratch = trial.scratch.take().unwrap();
        let folder = scratch.path().path();
        let aside = folder.with_extension("aside");
        fs::rename(&folder, &aside).unwrap();
        drop(scratch);
        fs::rename(&aside, &folder).unwrap();
    }

    fn end_abandoned(home: &TempDir) -> Vec<PathBuf> {
        end_abandoned_trials(&home.path().join(".config/vault"))
    }

    fn is_empty(home: &TempDir) -> bool {
        fs::read_dir(home.path()).unwrap().next().is_none()
    }

    #[test]
    fn a_trial_shows_the_files_and_ends_without_a_trace() {
        let home = tempfile::tempdir().unwrap();
        let trial = start(&home).unwrap();
        let link = home.path().join(".a/skills/pdf");
        assert_eq!(trial.link(), Some(link.as_path()));
        let script = link.join("scripts/run.sh");
        assert_eq!(fs::read_to_string(&script).unwrap(), "#!/bin/sh\n");
        assert_eq!(
            fs::metadata(script).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(end_abandoned(&home), [""; 0].map(PathBuf::from), "it runs");
        assert!(link.exists());
        trial.end().unwrap();
        assert!(is_empty(&home));
    }

    #[test]
    fn a_trial_replaces_and_removes_nothing_of_others() {
        let home = tempfile::tempdir().unwrap();
        let skills = home.path().join(".a/skills");
        for entry in ["file", "folder", "dangling link"] {
            fs::create_dir_all(&skills).unwrap();
            match entry {
                "file" => fs::write(skills.join("pdf"), "mine").unwrap(),
                "folder" => fs::create_dir(skills.join("pdf")).unwrap(),
                _ => symlink("nowhere", skills.join("pdf")).unwrap(),
            }
            assert_matches!(start(&home), Err(TrialError::Taken(_)), "{entry}");
            assert!(skills.join("pdf").symlink_metadata().is_ok(), "{entry}");
            assert!(!home.path().join(".config").exists(), "{entry}");
            fs::remove_dir_all(&skills).unwrap();
        }
        // A program puts an entry of its own in the link's place, and one beside it.
        let trial = start(&home).unwrap();
        fs::remove_file(skills.join("pdf")).unwrap();
        symlink("elsewhere", skills.join("pdf")).unwrap();
        fs::write(skills.join("beside"), "mine").unwrap();
        trial.end().unwrap();
        assert_eq!(
            fs::read_link(skills.join("pdf")).unwrap(),
            Path::new("elsewhere")
        );
        assert!(skills.join("beside").exists());
        assert!(!home.path().join(".config").exists());
    }

    #[test]
    fn the_next_start_ends_what_was_killed() {
        let home = tempfile::tempdir().unwrap();
        kill(start(&home).unwrap());
        let link = home.path().join(".a/skills/pdf");
        assert!(link.exists(), "a killed process removes nothing");
        assert_eq!(end_abandoned(&home), std::slice::from_ref(&link));
        assert!(is_empty(&home));
        assert!(end_abandoned(&home).is_empty());
    }

    #[test]
    fn a_record_that_is_wrong_removes_nothing_elsewhere() {
        let home = tempfile::tempdir().unwrap();
        let (config, mine) = (home.path().join(".config/vault"), home.path().join("mine"));
        symlink("/etc", &mine).unwrap();
        for text in [
            "",
            "[]",
            &format!(
                r#"{{"link":"{}","target":"/etc","folders":[]}}"#,
                mine.display()
            ),
        ] {
            let folder = config.join(TRYING).join("1-0");
            fs::create_dir_all(folder.join("pdf")).unwrap();
            fs::write(folder.join(RECORD), text).unwrap();
            assert!(end_abandoned(&home).is_empty(), "{text}");
            assert!(!config.exists(), "{text}");
            assert!(mine.symlink_metadata().is_ok(), "{text}");
        }
    }
}

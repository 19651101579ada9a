//! Reads the folders of this machine that skills are added from.

use std::path::Path;

use vault_format::hash::Digest;
use vault_format::manifest::MAX_SKILL_MD_BYTES;
use vault_gate as gate;
use vault_gate::links::SkillLink;

use super::AdmitError;
use crate::disk;
use crate::disk::source::{self, SourceError, SourceFolder};
use crate::store::LIMITS;

/// Reads a local folder. With `copy_links`, symbolic links are replaced by copies of their targets,
/// and the paths of these links are returned as well.
pub(super) fn read_folder(
    path: &str,
    copy_links: bool,
) -> Result<(SourceFolder, Vec<String>), AdmitError> {
    let read = if copy_links {
        source::read_with_links(Path::new(path), LIMITS, &gate::is_ignored)
            .and_then(source::replace_links_by_copies)
    } else {
        let folder = source::read_skill_folder(Path::new(path), LIMITS, &gate::is_ignored);
        folder.map(|folder| (folder, Vec::new()))
    };
    match read {
        // A missing path that looks like `owner/repository` was probably meant as a remote source,
        // so the error says that it can't be fetched here.
        Err(SourceError::Missing(_)) if looks_remote(path) => Err(AdmitError::SourceUnsupported {
            source_text: path.to_owned(),
        }),
        other => Ok(other?),
    }
}

/// Reads the folder `below` (with `/`; empty for `top` itself). With `with_links`, its symbolic
/// links are returned beside the files; without it, a link is an error.
pub(super) fn read_below(
    top: &Path,
    below: &str,
    with_links: bool,
) -> Result<(SourceFolder, Vec<SkillLink>), SourceError> {
    let ignored = &gate::is_ignored;
    let folder = match (below, with_links) {
        ("", true) => return source::read_with_links(top, LIMITS, ignored),
        ("", false) => source::read_skill_folder(top, LIMITS, ignored)?,
        (below, true) => {
            let (top, below) = (disk::resolve(top)?, Path::new(below));
            return source::read_beneath_with_links(&top, below, LIMITS, ignored);
        }
        (below, false) => {
            source::read_beneath(&disk::resolve(top)?, Path::new(below), LIMITS, ignored)?
        }
    };
    Ok((folder, Vec::new()))
}

/// Fails if the SKILL.md of a folder is not the one that was listed, because the user chose the
/// skill by what that one said.
pub(super) fn check_document(
    folder: &SourceFolder,
    listed: Option<Digest>,
) -> Result<(), SourceError> {
    let files = folder.files.iter();
    let mut documents = files.filter(|file| gate::is_document_name(&file.path));
    let is_same = match listed {
        Some(listed) => documents.any(|file| Digest::of(&file.bytes) == listed),
        // A SKILL.md that is too large is listed without its hash. The gate blocks it.
        None => documents.all(|file| file.bytes.len() as u64 > MAX_SKILL_MD_BYTES),
    };
    if is_same {
        return Ok(());
    }
    Err(SourceError::Changed(folder.path.clone()))
}

/// Returns whether a source looks like a URL, a registry entry or `owner/repository`. For sources
/// that do not exist as local paths.
fn looks_remote(source: &str) -> bool {
    if source.starts_with(['.', '/', '~']) {
        return false;
    }
    source.contains(':') || source.starts_with('@') || source.split('/').count() == 2
}

//! Sources that are a single artifact: a local archive, or an archive or SKILL.md at a URL.

use std::path::Path;

use async_trait::async_trait;
use url::Url;
use vault_format::hash::Digest;
use vault_format::manifest::SKILL_MD;
use vault_format::provenance::ARCHIVE_ENDINGS;
use vault_gate::RawFile;
use vault_shelf::DriftState;
use vault_shelf::fetch::{FetchedSkill, Upstream};

use super::batch::Comparison;
use super::{
    Kind, MAX_SKILL_MD_BYTES, describe_skill, fetch_file, join_path, new_upstream, plain_file,
    skill_file,
};
use crate::access::Access;
use crate::archive::{self, MAX_DOWNLOAD_BYTES};
use crate::error::{FetchError, Result, escape_untrusted};
use crate::find;
use crate::opened::{Content, OfferedSkill, Opened, last_part};

/// A local archive.
pub(crate) struct LocalArchive<'a>(pub(crate) &'a Path);

/// An archive at a URL.
pub(crate) struct RemoteArchive<'a>(pub(crate) &'a Url);

/// A SKILL.md at a URL.
pub(crate) struct RemoteSkillMd<'a>(pub(crate) &'a Url);

/// All files of an artifact, and the origin to record for its skills.
#[derive(Debug)]
struct FileSet {
    files: Vec<RawFile>,
    upstream: Upstream,
    has_several: bool,
}

#[async_trait]
impl Kind for LocalArchive<'_> {
    async fn open_source(&self, _: Access<'_>) -> Result<Opened> {
        let place = self.0.display().to_string();
        let bytes = read_file(self.0, MAX_DOWNLOAD_BYTES)?;
        let files = archive::unpack_archive(&place, &bytes)?;
        let name = self.0.file_name().and_then(|name| name.to_str());
        let identifier = format!("local:{}", name.unwrap_or("archive").trim());
        let upstream = new_upstream(&identifier, format!("sha256:{}", Digest::of(&bytes)))?;
        open_all(files, upstream, &place)
    }

    async fn compare_state(&self, _: &Comparison<'_>) -> Result<DriftState> {
        let reason = "there is nothing to compare with".to_owned();
        Ok(DriftState::Unchecked(reason))
    }
}

#[async_trait]
impl Kind for RemoteArchive<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        let url = self.0;
        let got = access.fetch_required(url, MAX_DOWNLOAD_BYTES).await?;
        let files = archive::unpack_archive(url.as_str(), &got.body)?;
        open_all(files, web_upstream(url, &got.body)?, url.as_str())
    }
}

#[async_trait]
impl Kind for RemoteSkillMd<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        let url = self.0;
        let body = fetch_file(access, url, MAX_SKILL_MD_BYTES).await?;
        let upstream = web_upstream(url, &body)?;
        let mut opened = open_all(vec![plain_file(SKILL_MD, body)], upstream, url.as_str())?;
        if url.path().trim_matches('/') != SKILL_MD {
            opened.notices.push(
                "only this one file was fetched; files beside it cannot be found by its address"
                    .to_owned(),
            );
        }
        Ok(opened)
    }
}

/// Lists every skill among these files.
pub(super) fn open_all(files: Vec<RawFile>, upstream: Upstream, place: &str) -> Result<Opened> {
    let folders = find::skill_folders(files.iter().map(|file| file.path.as_str()), "");
    if folders.is_empty() {
        // The name of a local archive may hold any character.
        let place = escape_untrusted(place);
        return Err(FetchError::NotFound(format!("{place} holds no SKILL.md")));
    }
    Ok(open_folders(&folders, files, upstream, place))
}

/// Lists the skills in these folders.
pub(super) fn open_folders(
    folders: &[String],
    files: Vec<RawFile>,
    upstream: Upstream,
    place: &str,
) -> Opened {
    let found: Vec<OfferedSkill> = folders
        .iter()
        .map(|folder| {
            let path = join_path(folder, SKILL_MD);
            let document = files.iter().find(|file| file.path == path);
            describe_skill(folder, place, document.map(|file| file.bytes.as_slice()))
        })
        .collect();
    let has_several = found.len() > 1;
    Opened::new(
        found,
        FileSet {
            files,
            upstream,
            has_several,
        },
    )
}

/// Returns the origin to record for an artifact at a URL. Identifiers have no form for plain HTTP,
/// which only sites on this machine use: it is recorded as HTTPS, with the actual address in
/// `address`.
pub(super) fn web_upstream(url: &Url, body: &[u8]) -> Result<Upstream> {
    let plain = url.as_str().strip_prefix("http://");
    let identifier = match plain {
        Some(rest) => format!("https:https://{rest}"),
        None => format!("https:{url}"),
    };
    Ok(Upstream {
        address: plain.map(|_| url.to_string()),
        ..new_upstream(&identifier, format!("sha256:{}", Digest::of(body)))?
    })
}

#[async_trait]
impl Content for FileSet {
    async fn take_skill(&self, _: Access<'_>, found: &OfferedSkill) -> Result<FetchedSkill> {
        let kept = self.files.iter().filter_map(|file| {
            let path = skill_file(&file.path, &found.folder)?;
            Some(RawFile {
                path: path.to_owned(),
                mode: file.mode,
                bytes: file.bytes.clone(),
            })
        });
        Ok(FetchedSkill {
            files: kept.collect(),
            folder: last_part(&found.folder)
                .or_else(|| file_stem(self.upstream.identifier.as_str())),
            upstream: Upstream {
                // If the artifact has only one skill, record no folder, so that the skill is found
                // again after it moved within the artifact.
                path: self.has_several.then(|| found.folder.clone()),
                ..self.upstream.clone()
            },
        })
    }

    fn base_folder(&self) -> Option<&str> {
        Some("")
    }
}

/// Returns the file name in an identifier, without the extension of an archive.
fn file_stem(identifier: &str) -> Option<String> {
    let name = identifier.rsplit(['/', ':']).next()?;
    let name = ARCHIVE_ENDINGS
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    (!name.is_empty() && name != SKILL_MD).then(|| name.to_owned())
}

fn read_file(path: &Path, max: u64) -> Result<Vec<u8>> {
    use rustix::fs::{FileType, Mode as Bits, OFlags, fstat, open};
    use rustix::io::Errno;
    use std::io::Read as _;
    let place = path.display().to_string();
    let failed = |error: &dyn std::fmt::Display| {
        FetchError::content_error(&place, format!("it cannot be read: {error}"))
    };
    // Do not block when opening a pipe, and do not follow a symbolic link.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    // The system's texts for these errors do not name the cause, so use texts of our own.
    let fd = open(path, flags, Bits::empty()).map_err(|error| match error {
        Errno::NOENT => {
            FetchError::NotFound(format!("{} does not exist", escape_untrusted(&place)))
        }
        Errno::LOOP => FetchError::content_error(&place, "it is a symbolic link"),
        Errno::NXIO => FetchError::content_error(&place, "it is not a regular file"),
        error => failed(&error),
    })?;
    // Check the open file and not the path, which could lead to another file by now.
    let stat = fstat(&fd).map_err(|error| failed(&error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(FetchError::content_error(
            &place,
            "it is not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    std::fs::File::from(fd)
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    if bytes.len() as u64 > max {
        return Err(FetchError::too_large(&place, max, "bytes"));
    }
    Ok(bytes)
}

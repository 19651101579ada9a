//! Sources that are one artifact or folder: a folder, SKILL.md or archive on this machine, or an
//! archive or SKILL.md at a URL.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use url::Url;
use vault_format::hash::Digest;
use vault_format::manifest::{MAX_FILE_BYTES, SKILL_MD};
use vault_format::provenance::ARCHIVE_ENDINGS;
use vault_gate::links::SkillLink;
use vault_gate::skill_folders::Found;
use vault_gate::{RawFile, is_document_name};
use vault_shelf::DriftState;
use vault_shelf::fetch::{FetchedSkill, Upstream};

use super::batch::Comparison;
use super::tree::{self, Tree};
use super::{
    Kind, MAX_SKILL_MD_BYTES, check_file_number, describe_skill, fetch_file, join_path,
    new_upstream, plain_file, settle_links, skill_file,
};
use crate::access::Access;
use crate::archive::{self, MAX_DOWNLOAD_BYTES, Unpacked};
use crate::error::{FetchError, Result, escape_untrusted};
use crate::find::{self, SkillPaths};
use crate::listing::{Listing, OfferedSkill, last_part};
use crate::opened::{Content, Opened};

/// A local folder, SKILL.md or archive.
pub(crate) struct Local<'a>(pub(crate) &'a Path);

/// The source kind of an archive at a URL, which lists every skill in the archive.
pub(crate) struct RemoteArchive<'a>(pub(crate) &'a Url);

/// The source kind of a single SKILL.md at a URL, a skill without other files.
pub(crate) struct RemoteSkillMd<'a>(pub(crate) &'a Url);

/// A local folder, which the vault library reads by itself. Only its list of skills comes from here.
#[derive(Debug)]
pub(crate) struct LocalFolder {
    path: PathBuf,
    place: String,
    paths: SkillPaths,
}

/// All files of an artifact, and the origin to record for its skills.
#[derive(Debug)]
pub(super) struct FileSet {
    /// The content, with paths relative to the wrapper.
    unpacked: Unpacked,
    paths: SkillPaths,
    upstream: Upstream,
    place: String,
    /// The only folder at the top, which has all files; empty if there is none.
    wrapper: String,
    /// The folder whose skills are listed, below the wrapper.
    base: String,
}

/// Lists the skills of a local folder, or the one skill of a file named SKILL.md. Returns `None`
/// for any other file. Sends no request.
pub fn list_folder(path: &Path) -> Result<Option<Listing>> {
    let Some(folder) = LocalFolder::search(path)? else {
        return Ok(None);
    };
    let found = folder.find_skills("");
    find::check_number(&folder.place, found.skills.len())?;
    Ok(Some(folder.list_skills(found, Some(String::new()))))
}

#[async_trait]
impl Kind for Local<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        tree::open_all(self.open_tree(access).await?, "").await
    }

    async fn open_tree<'a>(&'a self, _: Access<'a>) -> Result<Box<dyn Tree + 'a>> {
        if let Some(folder) = LocalFolder::search(self.0)? {
            return Ok(Box::new(folder));
        }
        let place = self.0.display().to_string();
        let bytes = read_file(self.0, MAX_DOWNLOAD_BYTES)?;
        let name = self.0.file_name().and_then(|name| name.to_str());
        let identifier = format!("local:{}", name.unwrap_or("archive").trim());
        let upstream = new_upstream(&identifier, format!("sha256:{}", Digest::of(&bytes)))?;
        let unpacked = archive::unpack_archive(&place, bytes).await?;
        Ok(Box::new(FileSet::new(unpacked, upstream, &place).await?))
    }

    async fn compare_state(&self, _: &Comparison<'_>) -> Result<DriftState> {
        let reason = "there is nothing to compare with".to_owned();
        Ok(DriftState::Unchecked(reason))
    }
}

#[async_trait]
impl Kind for RemoteArchive<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        tree::open_all(self.open_tree(access).await?, "").await
    }

    async fn open_tree<'a>(&'a self, access: Access<'a>) -> Result<Box<dyn Tree + 'a>> {
        let url = self.0;
        let got = access.fetch_required(url, MAX_DOWNLOAD_BYTES).await?;
        let upstream = web_upstream(url, &got.body)?;
        let unpacked = archive::unpack_archive(url.as_str(), got.body).await?;
        let files = FileSet::new(unpacked, upstream, url.as_str()).await?;
        Ok(Box::new(files))
    }
}

#[async_trait]
impl Kind for RemoteSkillMd<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        let url = self.0;
        let body = fetch_file(access, url, MAX_SKILL_MD_BYTES).await?;
        let upstream = web_upstream(url, &body)?;
        let mut opened =
            open_files(vec![plain_file(SKILL_MD, body)], upstream, url.as_str()).await?;
        if !is_document_name(url.path().trim_matches('/')) {
            opened.notices.push(
                "only this one file was fetched; files beside it cannot be found by its address"
                    .to_owned(),
            );
        }
        Ok(opened)
    }
}

/// Lists every skill among these files.
pub(super) async fn open_files(
    files: Vec<RawFile>,
    upstream: Upstream,
    place: &str,
) -> Result<Opened> {
    let unpacked = Unpacked {
        files,
        links: Vec::new(),
    };
    open_archive(unpacked, upstream, place).await
}

/// Lists every skill of an unpacked archive.
pub(super) async fn open_archive(
    unpacked: Unpacked,
    upstream: Upstream,
    place: &str,
) -> Result<Opened> {
    let files = FileSet::new(unpacked, upstream, place).await?;
    tree::open_all(Box::new(files), "").await
}

impl LocalFolder {
    /// Searches a folder, or takes the folder of a SKILL.md as one skill. Returns `None` for any
    /// other file.
    fn search(path: &Path) -> Result<Option<Self>> {
        let name = path.file_name().and_then(|name| name.to_str());
        let (folder, paths) = if path.is_dir() {
            (path, find::search_folder(path)?)
        } else if let Some(name) = name.filter(|name| is_document_name(name)) {
            let paths = SkillPaths {
                skill_md_paths: vec![name.to_owned()],
                left_out: Vec::new(),
            };
            (path.parent().unwrap_or(Path::new("")), paths)
        } else {
            return Ok(None);
        };
        Ok(Some(Self {
            path: folder.to_owned(),
            place: path.display().to_string(),
            paths,
        }))
    }

    fn list_skills(&self, found: Found, base: Option<String>) -> Listing {
        let skills = found.skills.iter().map(|(folder, document)| {
            // A SKILL.md that cannot be read still makes a skill. The library reports the reason.
            let text = read_file(&self.path.join(document), MAX_SKILL_MD_BYTES);
            OfferedSkill {
                is_too_large: matches!(text, Err(FetchError::TooLarge { .. })),
                ..describe_skill(folder, &self.place, text.as_deref().ok())
            }
        });
        Listing {
            skills: skills.collect(),
            left_out: found.left_out,
            base,
        }
    }
}

/// Returns the first symbolic link on the way from a folder to a path below it. Sends no request.
pub fn find_link(folder: &Path, below: &str) -> Option<PathBuf> {
    let mut at = folder.to_owned();
    below.split('/').find_map(|part| {
        at.push(part);
        let found = at.symlink_metadata().ok()?;
        found.file_type().is_symlink().then(|| at.clone())
    })
}

#[async_trait]
impl Tree for LocalFolder {
    fn place(&self) -> &str {
        &self.place
    }

    fn base(&self) -> &'static str {
        ""
    }

    fn skill_paths(&self) -> &SkillPaths {
        &self.paths
    }

    async fn read_file(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>> {
        let file = self.path.join(path);
        // The folder may be a clone of a stranger's repository, so a link in it must not make vault
        // read other files.
        if find_link(&self.path, path).is_some() || !file.is_file() {
            return Ok(None);
        }
        read_file(&file, max).map(Some)
    }

    async fn open_found(self: Box<Self>, found: Found, base: Option<String>) -> Result<Opened> {
        Ok(Opened::new(self.list_skills(found, base), *self))
    }
}

#[async_trait]
impl Content for LocalFolder {
    async fn take_skill(&self, _: Access<'_>, _: &OfferedSkill) -> Result<FetchedSkill> {
        // Only the library reads folders, because it checks each entry while it reads it.
        Err(FetchError::Unsupported {
            message: format!(
                "{} is a folder of this machine",
                escape_untrusted(&self.place)
            ),
            hint: "add it with the command line on this machine".to_owned(),
        })
    }

    fn local_root(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// Returns the folder that has all files of an archive. Code hosts and people pack a folder as one.
/// A folder `skills` counts as content, because a later archive may have files beside it, and so
/// does the folder of a marketplace's list.
fn wrapper_of(unpacked: &Unpacked) -> String {
    let files = unpacked.files.iter().map(|file| file.path.as_str());
    let links = unpacked.links.iter().map(|link| link.path.as_str());
    // The Finder adds a second folder, with metadata only.
    let mut paths = files
        .chain(links)
        .filter(|path| !path.starts_with("__MACOSX/"));
    let Some((top, _)) = paths.next().and_then(|path| path.split_once('/')) else {
        return String::new();
    };
    let is_below = |path: &str| path.split_once('/').is_some_and(|(first, _)| first == top);
    let is_content = matches!(top, "skills" | ".claude-plugin");
    if !is_content && paths.all(is_below) {
        top.to_owned()
    } else {
        String::new()
    }
}

impl FileSet {
    pub(super) async fn new(unpacked: Unpacked, upstream: Upstream, place: &str) -> Result<Self> {
        let place = place.to_owned();
        // Links are followed, so this may take as long as the unpacking.
        let create = move || {
            let wrapper = wrapper_of(&unpacked);
            let unpacked = unpacked.relative_to(&wrapper);
            let files = unpacked.files.iter().map(|file| file.path.as_str());
            Self {
                paths: SkillPaths::of_files(files, &unpacked.links),
                unpacked,
                upstream,
                place,
                wrapper,
                base: String::new(),
            }
        };
        archive::run_in_turn(create).await
    }
}

#[async_trait]
impl Tree for FileSet {
    fn place(&self) -> &str {
        &self.place
    }

    fn base(&self) -> &str {
        &self.base
    }

    fn set_base(&mut self, base: &str) -> Result<()> {
        // People who look into the archive see the folder around all files.
        let is_below = |path: &str| {
            let below = path.strip_prefix(base);
            below.is_some_and(|below| below.starts_with('/'))
        };
        let files = self.unpacked.files.iter().map(|file| &file.path);
        let mut paths = files.chain(self.unpacked.links.iter().map(|link| &link.path));
        self.base = if paths.any(|path| is_below(path)) {
            base.to_owned()
        } else {
            self.without_wrapper(base).to_owned()
        };
        Ok(())
    }

    fn without_wrapper<'a>(&self, folder: &'a str) -> &'a str {
        match folder.strip_prefix(self.wrapper.as_str()) {
            Some("") => "",
            Some(inside) => inside.strip_prefix('/').unwrap_or(folder),
            None => folder,
        }
    }

    fn skill_paths(&self) -> &SkillPaths {
        &self.paths
    }

    async fn read_file(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>> {
        let mut files = self.unpacked.files.iter();
        match files.find(|file| file.path == path) {
            Some(file) if file.bytes.len() as u64 > max => {
                Err(FetchError::too_large(path, max, "bytes"))
            }
            file => Ok(file.map(|file| file.bytes.clone())),
        }
    }

    async fn open_found(self: Box<Self>, found: Found, base: Option<String>) -> Result<Opened> {
        let files = self.unpacked.files.iter();
        let files: HashMap<&str, &[u8]> = files
            .map(|file| (file.path.as_str(), file.bytes.as_slice()))
            .collect();
        let skills = found.skills.iter().map(|(folder, document)| {
            let text = files.get(document.as_str()).copied();
            let is_too_large = text.is_some_and(|text| text.len() as u64 > MAX_SKILL_MD_BYTES);
            OfferedSkill {
                is_too_large,
                ..describe_skill(folder, &self.place, text.filter(|_| !is_too_large))
            }
        });
        let listing = Listing {
            skills: skills.collect(),
            left_out: found.left_out,
            base,
        };
        Ok(Opened::new(listing, *self))
    }
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
    async fn take_skill(&self, access: Access<'_>, found: &OfferedSkill) -> Result<FetchedSkill> {
        let (mut files, links) = self.unpacked.content_below(&found.folder);
        let place = (self.place.as_str(), found.folder.as_str());
        check_file_number(place, files.len() + links.len())?;
        // An archive may be larger than a skill. In a repository, such a file is not fetched.
        let is_large = |file: &&RawFile| file.bytes.len() as u64 > MAX_FILE_BYTES;
        if let Some(large) = files.iter().find(is_large) {
            let path = join_path(&self.place, &join_path(&found.folder, &large.path));
            return Err(FetchError::too_large(path, MAX_FILE_BYTES, "bytes"));
        }
        let copied_links = settle_links(access, place, &mut files, &links)?;
        Ok(FetchedSkill {
            files,
            folder: last_part(&found.folder)
                .or_else(|| registry_slug(&self.upstream))
                .or_else(|| last_part(&self.wrapper))
                .or_else(|| file_stem(self.upstream.identifier.as_str())),
            upstream: Upstream {
                // Record the folder even of the only skill: a later version of the artifact may
                // have another skill, which must not take its place.
                path: Some(found.folder.clone()),
                copied_links,
                ..self.upstream.clone()
            },
        })
    }
}

impl Unpacked {
    /// Makes the paths relative to the wrapper. An empty wrapper changes nothing.
    fn relative_to(mut self, wrapper: &str) -> Self {
        let files = self.files.iter_mut().map(|file| &mut file.path);
        let links = self.links.iter_mut().map(|link| &mut link.path);
        for path in files.chain(links) {
            let inside = path.strip_prefix(wrapper);
            if let Some(inside) = inside.and_then(|inside| inside.strip_prefix('/')) {
                *path = inside.to_owned();
            }
        }
        self
    }

    /// Returns the files and links of the skill in a folder, with their paths in the skill.
    pub(super) fn content_below(&self, folder: &str) -> (Vec<RawFile>, Vec<SkillLink>) {
        let kept = self.files.iter().filter_map(|file| {
            let path = skill_file(&file.path, folder)?;
            Some(RawFile {
                path: path.to_owned(),
                mode: file.mode,
                bytes: file.bytes.clone(),
            })
        });
        let links = self.links.iter().filter_map(|link| {
            Some(SkillLink {
                path: skill_file(&link.path, folder)?.to_owned(),
                target: link.target.clone(),
            })
        });
        (kept.collect(), links.collect())
    }
}

/// Returns the name under which a registry lists a skill; `None` for other sources. It is used in
/// place of the folder's name, which the packer of an archive chooses freely.
pub(super) fn registry_slug(upstream: &Upstream) -> Option<String> {
    let slug = upstream.identifier.as_str().strip_prefix("registry:")?;
    last_part(slug)
}

/// Returns the file name in an identifier, without the extension of an archive.
fn file_stem(identifier: &str) -> Option<String> {
    let name = identifier.rsplit(['/', ':']).next()?;
    let name = ARCHIVE_ENDINGS
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    (!name.is_empty() && !is_document_name(name)).then(|| name.to_owned())
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
    // The system's texts for these errors do not name the cause, so replace them.
    let fd = open(path, flags, Bits::empty()).map_err(|error| match error {
        Errno::NOENT => {
            FetchError::NotFound(format!("{} does not exist", escape_untrusted(&place)))
        }
        Errno::LOOP => FetchError::content_error(&place, "it is a symbolic link"),
        Errno::NXIO => FetchError::content_error(&place, "it is not a regular file"),
        error => failed(&error),
    })?;
    // Check the open file and not the path, which may lead to another file by now.
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

//! The kinds of sources behind one trait; similar kinds share a file. A kind lists the skills of a
//! source, and compares the current state of a source with what is recorded of a skill.

pub(crate) mod batch;
mod files;
mod index;
mod marketplace;
mod npm;
mod registry;
mod repository;
pub mod search;
pub mod site;
mod tree;

pub use files::{find_link, list_folder};

use async_trait::async_trait;
use url::Url;
use vault_format::hash::Digest;
use vault_format::manifest::{MAX_FILES, Mode};
use vault_format::provenance::ProvenanceId;
use vault_format::text::printable;
use vault_gate::document::Document;
use vault_gate::links::{SkillLink, copy_links};
use vault_gate::{RawFile, is_ignored};
use vault_shelf::DriftState;
use vault_shelf::fetch::{FetchedSkill, Upstream};

use batch::Comparison;
use tree::Tree;

use crate::access::{Access, Fetcher};
use crate::error::{FetchError, Result, escape_untrusted};
use crate::listing::{OfferedSkill, last_part};
use crate::opened::Opened;

use crate::source::{BadSource, GitSource, ParseOptions, Source};

/// Maximum size in bytes of a SKILL.md that is fetched by itself.
pub(crate) const MAX_SKILL_MD_BYTES: u64 = 256 << 10;
/// Maximum size of a JSON response, in bytes.
pub(crate) const MAX_JSON_BYTES: u64 = 1 << 20;

/// The operations that every kind of source implements.
#[async_trait]
pub(crate) trait Kind: Send + Sync {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened>;

    /// Opens the source as a tree of files, to read a marketplace in it. The default fails, because
    /// a site or a registry lists skills and has no tree.
    async fn open_tree<'a>(&'a self, _: Access<'a>) -> Result<Box<dyn Tree + 'a>> {
        Err(FetchError::Unsupported {
            message:
                "a marketplace is a repository, a folder or an archive, and this source is not"
                    .to_owned(),
            hint: "name the repository: vault add github:<owner>/<repository> --plugin <name>"
                .to_owned(),
        })
    }

    /// Compares the source's current state with what is recorded of a skill. The default fetches
    /// the skill again; kinds with a cheaper check override it.
    async fn compare_state(&self, comparison: &Comparison<'_>) -> Result<DriftState> {
        comparison.by_fetching().await
    }
}

pub(crate) fn kind_of(source: &Source) -> Result<Box<dyn Kind + '_>> {
    Ok(match source {
        Source::Local(path) => Box::new(files::Local(path)),
        Source::Git(repository) => Box::new(repository::Address(repository)),
        Source::Archive(url) => Box::new(files::RemoteArchive(url)),
        Source::SkillMd(url) => Box::new(files::RemoteSkillMd(url)),
        Source::WellKnown {
            site,
            skill,
            or_site,
        } => Box::new(site::Address {
            site,
            skill: skill.as_deref(),
            or_site: *or_site,
        }),
        Source::ClawHub {
            owner,
            slug,
            version,
        } => Box::new(registry::ClawHub {
            owner: owner.as_deref(),
            slug,
            version: version.as_deref(),
        }),
        Source::Registry { slug, version } => Box::new(registry::FileRegistry {
            slug,
            version: version.as_deref(),
        }),
        Source::Vault { slug, name } => {
            return Err(FetchError::Unsupported {
                message: format!(
                    "vault:{slug}/{name} comes with its linked vault and cannot be added"
                ),
                hint: format!("vault cloud pull --skill {}", escape_untrusted(name)),
            });
        }
    })
}

/// Fetches a skill again from its recorded origin, at the recorded reference. If a signer was
/// recorded (pinned), fails unless the source has a valid signature by that vault, for the same
/// version or a later one.
pub(crate) async fn fetch_recorded(
    access: Access<'_>,
    upstream: &Upstream,
) -> Result<FetchedSkill> {
    let source = source_of(access.fetcher, upstream).map_err(|bad| FetchError::Unsupported {
        message: bad.to_string(),
        hint: bad
            .hint()
            .unwrap_or_else(|| "add it again from its new place".to_owned()),
    })?;
    let recorded = upstream.path.as_deref();
    let opened = match (&source, recorded) {
        (Source::Archive(_), Some(folder)) => open_archived(access, &source, folder).await?,
        _ => open_checked(access, &source, Part::default()).await?,
    };
    // A user who once accepted copies in place of links gets them for later versions too.
    let access = Access {
        copy_links: !upstream.copied_links.is_empty(),
        ..access
    };
    let skills = &opened.listing.skills;
    let found = match (&source, recorded) {
        // Either the recorded folder was opened, or an older record names no folder because the
        // archive had one skill. If there are several skills now, it is unknown which one is meant.
        (Source::Archive(_), _) => match &skills[..] {
            [only] => Some(only),
            _ => None,
        },
        // Take only the recorded folder. Even if one skill is left in the source, it may be a
        // different one.
        (_, Some(folder)) => skills.iter().find(|found| found.folder == *folder),
        (_, None) => opened.listing.default_skill(),
    };
    let found = found.ok_or_else(|| {
        let folders = skills.iter().map(|found| found.folder.as_str());
        missing_folder(&source, recorded, folders)
    })?;
    let mut skill = opened
        .content
        .take_skill(access.to_source(&source), found)
        .await?;
    // Older records lack the publisher of a registry's skill. Keep their identifier: with another
    // one the skill would count as one of another source.
    if let Source::ClawHub { owner: None, .. } = &source {
        skill.upstream.identifier.clone_from(&upstream.identifier);
    }
    // A new owner of the source must not be able to replace a skill whose signer was pinned.
    let pin = upstream.check_pin(&skill.upstream);
    pin.map_err(|error| FetchError::Signer {
        place: source.display_name(),
        reason: error.to_string(),
    })?;
    Ok(skill)
}

/// Opens an archive and lists only the skill in a recorded folder. Fails if it is not there.
async fn open_archived(access: Access<'_>, source: &Source, folder: &str) -> Result<Opened> {
    access.policy.check_source(source)?;
    let access = access.to_source(source);
    let kind = kind_of(source)?;
    let tree = kind.open_tree(access).await?;
    // Older records contain the folder around all files of the archive.
    for folder in [folder, tree.without_wrapper(folder)] {
        // A plugin may name a folder inside of another skill, so search at the folder itself.
        let found = tree.find_skills(folder).of_named_folder(folder);
        if found
            .skills
            .first()
            .is_some_and(|(first, _)| first == folder)
        {
            let mut opened = tree.open_found(found, None).await?;
            opened.scope = access.scope;
            return Ok(opened);
        }
    }
    let found = tree.find_skills("");
    let folders = found.skills.iter().map(|(folder, _)| folder.as_str());
    Err(missing_folder(source, Some(folder), folders))
}

/// Creates the error for a recorded folder that has no skill any more. `recorded` is `None` if the
/// record names no folder and the source has several skills.
fn missing_folder<'a>(
    source: &Source,
    recorded: Option<&str>,
    folders: impl Iterator<Item = &'a str>,
) -> FetchError {
    let place = source.display_name();
    match recorded {
        // The record does not tell which of them was added, so no skill is known to be gone.
        None => FetchError::NotFound(format!("{place} has several skills now")),
        Some("") => FetchError::NoSkill(format!("{place} no longer has a skill at its root")),
        Some(folder) => {
            let moved = repository::moved_hint(folders, folder);
            FetchError::NoSkill(format!("{place} no longer has a folder {folder}{moved}"))
        }
    }
}

/// The part of a source whose skills are listed. By default it is the whole source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part<'a> {
    /// A folder of an archive. Other sources have their folder in [`Source`] itself.
    pub path: Option<&'a str>,
    /// A plugin of a marketplace.
    pub plugin: Option<&'a str>,
}

/// Opens a source and lists the skills of this part, if the policy allows it.
pub(crate) async fn open_checked(
    access: Access<'_>,
    source: &Source,
    part: Part<'_>,
) -> Result<Opened> {
    access.policy.check_source(source)?;
    let access = access.to_source(source);
    let kind = kind_of(source)?;
    let mut opened = if part.path.is_none() && part.plugin.is_none() {
        kind.open_source(access).await?
    } else {
        let mut tree = kind.open_tree(access).await?;
        if let Some(path) = part.path {
            tree.set_base(path)?;
        }
        match part.plugin {
            Some(plugin) => marketplace::open_plugin(access, tree, plugin).await?,
            None => tree::open_all(tree, "").await?,
        }
    };
    opened.scope = access.scope;
    Ok(opened)
}

/// Fails unless the recorded address belongs to the source that the recorded identifier names:
/// people review the identifier, but the address is fetched.
pub fn check_address(upstream: &Upstream, options: &ParseOptions) -> Result<(), BadSource> {
    let Some(address) = &upstream.address else {
        return Ok(());
    };
    let identifier = upstream.identifier.as_str();
    // Identifiers have no form for plain HTTP, which only sites on this machine use.
    let secure = match address.strip_prefix("http://") {
        Some(rest) => format!("https://{rest}"),
        None => address.clone(),
    };
    let agrees = if let Some(place) = identifier.strip_prefix("wellknown:") {
        let name = place.strip_prefix(&secure);
        let name = name.and_then(|name| name.strip_prefix('/'));
        name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
    } else if let Some(place) = identifier.strip_prefix("https:") {
        place == secure
    } else {
        let repository = GitSource::of_address(address, options)?;
        let path = upstream.path.as_deref().unwrap_or_default();
        // The address of a repository on a code host ends with `.git`, but an identifier may lack
        // that ending.
        let bare = repository.identifier.strip_suffix(".git");
        let bare = bare.map(|identifier| GitSource {
            identifier: identifier.to_owned(),
            ..repository.clone()
        });
        let mut forms = std::iter::once(&repository).chain(&bare);
        forms.any(|form| form.identifier_of(path) == identifier)
    };
    if agrees {
        return Ok(());
    }
    let reason = format!("it is not an address of {}", printable(identifier));
    Err(BadSource::new(address, reason))
}

/// Returns the source of a recorded origin, at the recorded reference.
pub(crate) fn source_of(fetcher: &Fetcher, upstream: &Upstream) -> Result<Source, BadSource> {
    let options = &ParseOptions {
        local_sites: fetcher.settings.local_sites,
        ..fetcher.settings.parse.clone()
    };
    let identifier = upstream.identifier.as_str();
    let path = upstream.path.clone().filter(|path| !path.is_empty());
    let reference = upstream.reference.as_deref();
    // `address` is set only if the identifier alone does not lead back to the source.
    let Some(address) = &upstream.address else {
        let mut source = Source::of_identifier(&upstream.identifier, reference, options)?;
        // Use the recorded folder and not the one in the identifier. An empty folder is the root.
        if let (Source::Git(git), Some(_)) = (&mut source, &upstream.path) {
            git.path = path;
        }
        return Ok(source);
    };
    check_address(upstream, options)?;
    if identifier.starts_with("wellknown:") {
        let name = identifier.rsplit('/').next().unwrap_or_default();
        return Source::parse(&format!("wellknown:{address}/{name}"), options, &|_| false);
    }
    if identifier.starts_with("https:") {
        return Source::parse(address, options, &|_| false);
    }
    let mut git = GitSource::of_address(address, options)?;
    git.path = path;
    git.reference.clone_from(&upstream.reference);
    Ok(Source::Git(git))
}

/// Describes a skill by its SKILL.md. Falls back to the folder's name if that cannot be parsed.
pub(crate) fn describe_skill(folder: &str, place: &str, document: Option<&[u8]>) -> OfferedSkill {
    let parsed = document.and_then(|bytes| Document::parse(bytes).ok());
    let own = parsed.as_ref().map(Document::frontmatter);
    OfferedSkill {
        name: own
            .map(|own| own.name.clone())
            .filter(|name| !name.is_empty())
            .or_else(|| last_part(folder))
            .or_else(|| last_part(place))
            .unwrap_or_else(|| "skill".to_owned()),
        folder: folder.to_owned(),
        description: own.map(|own| own.description.clone()),
        document: document.map(Digest::of),
        is_too_large: false,
    }
}

/// Creates the record of a skill's origin: its identifier, and its commit, version or digest.
pub(crate) fn new_upstream(identifier: &str, revision: impl Into<String>) -> Result<Upstream> {
    let parsed: Result<ProvenanceId, _> = identifier.parse();
    let identifier = parsed.map_err(|error| {
        FetchError::content_error(identifier, format!("no source can be recorded: {error}"))
    })?;
    Ok(Upstream {
        identifier,
        address: None,
        path: None,
        reference: None,
        revision: Some(revision.into()),
        tree: None,
        signer: None,
        root_version: None,
        signed_version: None,
        copied_links: Vec::new(),
    })
}

/// Resolves an address relative to a base URL.
pub(crate) fn join_url(base: &Url, path: &str) -> Result<Url> {
    base.join(path)
        .map_err(|error| FetchError::content_error(path, error.to_string()))
}

/// Parses a JSON response. `place` names the response in error messages.
pub(crate) fn parse_json<T: serde::de::DeserializeOwned>(
    place: impl AsRef<str>,
    body: &[u8],
) -> Result<T> {
    parse_object(body).map_err(|reason| {
        FetchError::content_error(place, format!("its answer cannot be read: {reason}"))
    })
}

/// Parses a JSON object. Fails with the reason as text.
pub(crate) fn parse_object<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    // serde also reads an array as the members of an object, by their order. Other tools do not.
    // Editors on Windows write a byte order mark before the text, which other tools skip.
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a JSON object".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| escape_untrusted(&error.to_string()))
}

/// Fetches a file of a skill. Fails if the server answers with a web page instead.
pub(crate) async fn fetch_file(access: Access<'_>, url: &Url, max: u64) -> Result<Vec<u8>> {
    let got = access.fetch_required(url, max).await?;
    // Many servers answer with a page and status 200 if they do not have the file, or if the
    // address is not that of the raw file.
    let name = url.path().rsplit('/').next().unwrap_or_default();
    let ending = name.rsplit('.').next().unwrap_or_default();
    let is_page = ["html", "htm"]
        .iter()
        .any(|page| ending.eq_ignore_ascii_case(page));
    if got.content_type.starts_with("text/html") && !is_page {
        return Err(FetchError::content_error(
            url,
            format!("it is a web page, not a {name}"),
        ));
    }
    Ok(got.body)
}

/// Fails if a skill has more files than vault signs. `folder` is the folder of the skill in the
/// source.
pub(crate) fn check_file_number((place, folder): (&str, &str), number: usize) -> Result<()> {
    if number <= MAX_FILES {
        return Ok(());
    }
    let skill = join_path(place, folder);
    let skill = skill.trim_end_matches('/');
    Err(FetchError::too_large(skill, MAX_FILES as u64, "files"))
}

/// Fails if a skill has links, unless the user asked for copies in their place. `folder` is the
/// folder of the skill in the source.
pub(crate) fn refuse_links(
    access: Access<'_>,
    (place, folder): (&str, &str),
    files: &[RawFile],
    links: &[SkillLink],
) -> Result<()> {
    match links.first() {
        Some(first) if !access.copy_links => Err(FetchError::Link {
            place: escape_untrusted(place),
            path: escape_untrusted(&join_path(folder, &first.path)),
            is_copyable: links.iter().all(|link| link.find_target(files).is_ok()),
        }),
        _ => Ok(()),
    }
}

/// Takes the links of a skill as copies if the user asked for that, and returns their paths. Fails
/// if the skill has links otherwise, or if one does not lead to a file of the skill. `folder` is
/// the folder of the skill in the source.
pub(crate) fn settle_links(
    access: Access<'_>,
    (place, folder): (&str, &str),
    files: &mut Vec<RawFile>,
    links: &[SkillLink],
) -> Result<Vec<String>> {
    refuse_links(access, (place, folder), files, links)?;
    copy_links(files, links).map_err(|(link, bad)| {
        let path = escape_untrusted(&join_path(folder, &link.path));
        let reason = format!("{path} is a symbolic link that cannot be copied: {bad}");
        FetchError::content_error(place, reason)
    })?;
    Ok(links.iter().map(|link| link.path.clone()).collect())
}

pub(crate) fn plain_file(path: &str, bytes: Vec<u8>) -> RawFile {
    RawFile {
        path: path.to_owned(),
        mode: Mode::Plain,
        bytes,
    }
}

pub(crate) fn join_path(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Returns the path of a file relative to its skill's folder. Returns `None` for files outside the
/// folder and for files that skills never contain, such as `__MACOSX`.
pub(crate) fn skill_file<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let inside = if folder.is_empty() {
        path
    } else {
        path.strip_prefix(folder)?.strip_prefix('/')?
    };
    let is_kept = |part| !is_ignored(part) && part != "__MACOSX";
    inside.split('/').all(is_kept).then_some(inside)
}

//! Repositories: git fetches one commit, and the skills are read from its objects.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use vault_gate::RawFile;
use vault_gate::links::SkillLink;
use vault_gate::skill_folders::{Found, LeftOut, LeftOutReason, find_skills};
use vault_shelf::DriftState;
use vault_shelf::fetch::{FetchedSkill, Upstream};

use super::batch::{Comparison, share_result};
use super::files::registry_slug;
use super::tree::{self, Tree};
use super::{
    Kind, MAX_SKILL_MD_BYTES, check_file_number, describe_skill, new_upstream, plain_file,
    refuse_links, settle_links, skill_file,
};
use crate::access::{Access, Fetcher, short_commit};
use crate::archive::{MAX_UNPACKED_BYTES, run_in_turn};
use crate::error::{FetchError, Result, escape_untrusted};
use crate::find::{MAX_TARGET_BYTES, SkillPaths, read_target};
use crate::git::{self, Checkout, Depth, EntryKind, Resolved, is_commit};
use crate::listing::{Listing, OfferedSkill, last_part};
use crate::opened::{Content, Opened};
use crate::source::{GitSource, Source};

/// Maximum size of the texts of all links of a repository, in bytes.
const MAX_TARGETS_BYTES: u64 = 16 << 20;
/// The target of a link whose text is not read: no file has a name with NUL.
const NOWHERE: &str = "\0";
/// Number of SKILL.md files that are read together.
const DOCUMENTS_AT_ONCE: usize = 200;

/// A git repository as a [`Kind`] of source.
pub(crate) struct Address<'a>(pub(crate) &'a GitSource);

/// One commit of a repository.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(crate) source: GitSource,
    resolved: Resolved,
    pub(crate) checkout: Checkout,
    /// All symbolic links of the commit.
    links: Vec<SkillLink>,
    paths: SkillPaths,
    /// The origin to record instead of the repository, if a registry referred to it.
    recorded: Option<Upstream>,
}

#[async_trait]
impl Kind for Address<'_> {
    async fn open_source(&self, access: Access<'_>) -> Result<Opened> {
        Repository::fetch_repository(access, self.0)
            .await?
            .open_all()
            .await
    }

    async fn open_tree<'a>(&'a self, access: Access<'a>) -> Result<Box<dyn Tree + 'a>> {
        let repository = Repository::fetch_repository(access, self.0).await?;
        Ok(Box::new(repository))
    }

    async fn compare_state(&self, comparison: &Comparison<'_>) -> Result<DriftState> {
        let (source, upstream) = (self.0, comparison.upstream);
        // A commit never changes, so a skill that was added at one needs no request.
        if upstream.reference.as_deref().is_some_and(is_commit) {
            return Ok(DriftState::UpToDate);
        }
        let (pinned, settings) = comparison.access.fetcher.git_access(source).await?;
        let asked = format!(
            "{} {:?} {:?}",
            source.address, source.reference, source.tail
        );
        let resolve = git::resolve_commit(&settings, source, &pinned);
        let resolved = share_result(&comparison.batch.commits, asked.clone(), resolve).await?;
        if resolved.commit == comparison.recorded {
            return Ok(DriftState::UpToDate);
        }
        // The branch or tag moved. The tree id of the skill's folder shows whether the skill itself
        // changed.
        let path = upstream.path.as_deref().unwrap_or_default();
        let fetch = async {
            let fetched =
                git::fetch_commit(&settings, source, &resolved, Depth::Trees, &pinned).await;
            fetched.map(Arc::new)
        };
        let checkout = share_result(&comparison.batch.trees, asked.clone(), fetch).await?;
        match (checkout.tree_id(path), &upstream.tree) {
            (Some(tree), Some(before)) if tree == before => Ok(DriftState::UpToDate),
            (Some(_), _) => {
                let fetch = async |depth| {
                    let fetched =
                        git::History::fetch_history(&settings, source, &resolved, &pinned, depth);
                    // Without the history, nothing is said about it.
                    Ok(Arc::new(fetched.await.unwrap_or_default()))
                };
                let histories = &comparison.batch.histories;
                let far = format!("{asked} far");
                let mut history = share_result(histories, asked, fetch(git::NEAR)).await?;
                // Many commits may have followed the recorded one. Or none has, in a repository
                // whose history is longer than that.
                if history.may_reach(comparison.recorded) {
                    history = share_result(histories, far, fetch(git::FAR)).await?;
                }
                Ok(DriftState::Drifted {
                    recorded: short_commit(comparison.recorded).to_owned(),
                    upstream: short_commit(&checkout.commit).to_owned(),
                    is_rewritten: history.lacks(comparison.recorded),
                })
            }
            (None, _) => {
                let files = checkout.tree.iter().map(|entry| entry.path.as_str());
                let found = find_skills(files, "");
                let folders = found.skills.iter().map(|(folder, _)| folder.as_str());
                Err(FetchError::NoSkill(format!(
                    "{} no longer has a folder {path} at commit {}{}",
                    source.place,
                    short_commit(&checkout.commit),
                    moved_hint(folders, path)
                )))
            }
        }
    }
}

/// Returns the end of a message that names folders with the same name as a missing one. Empty if
/// there are none.
pub(super) fn moved_hint<'a>(folders: impl Iterator<Item = &'a str>, missing: &str) -> String {
    let Some(name) = last_part(missing) else {
        return String::new();
    };
    let same = folders.filter(|folder| last_part(folder).as_ref() == Some(&name));
    let same: Vec<String> = same.take(3).map(escape_untrusted).collect();
    if same.is_empty() {
        return String::new();
    }
    format!("; a skill of that name is now in {}", same.join(" and in "))
}

/// Reads the targets of all symbolic links of a commit. One that is missing, or longer than any that
/// can be followed, leads nowhere: it is a fault of the skill that has the link, and of no other.
async fn read_links(checkout: &Checkout) -> Result<Vec<SkillLink>> {
    let entries = checkout.tree.iter();
    let links: Vec<_> = entries
        .filter(|entry| entry.kind == EntryKind::Link)
        .collect();
    let ids: Vec<&str> = links.iter().map(|entry| entry.id.as_str()).collect();
    let sizes = checkout.blob_sizes(&ids).await?;
    let ids = ids_within(ids, &sizes, MAX_TARGETS_BYTES);
    let targets = checkout.read_blobs(&ids, MAX_TARGETS_BYTES).await?;
    let links = links.into_iter().map(|entry| SkillLink {
        path: entry.path.clone(),
        target: match targets.get(&entry.id) {
            Some(target) => read_target(target),
            None => NOWHERE.to_owned(),
        },
    });
    Ok(links.collect())
}

/// Returns the ids of link targets to read: those short enough to be followed, as many as fit into
/// `max` bytes together.
fn ids_within<'a>(mut ids: Vec<&'a str>, sizes: &HashMap<String, u64>, max: u64) -> Vec<&'a str> {
    ids.sort_unstable();
    ids.dedup();
    let mut left = max;
    ids.retain(|id| {
        let size = sizes.get(*id).copied();
        let size = size.filter(|size| *size <= MAX_TARGET_BYTES as u64);
        let rest = size.and_then(|size| left.checked_sub(size));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    ids
}

/// Returns the paths of a commit that matter for a list of its skills, and its links.
async fn skill_paths(
    checkout: &Checkout,
    links: Vec<SkillLink>,
) -> Result<(SkillPaths, Vec<SkillLink>)> {
    let entries = checkout.tree.iter();
    let files = entries.filter(|entry| matches!(entry.kind, EntryKind::File(_)));
    let files: Vec<String> = files.map(|entry| entry.path.clone()).collect();
    let collect = move || {
        let paths = SkillPaths::of_files(files.iter().map(String::as_str), &links);
        (paths, links)
    };
    let (mut paths, links) = run_in_turn(collect).await?;
    let entries = checkout.tree.iter();
    let submodules = entries.filter(|entry| entry.kind == EntryKind::Submodule);
    let submodules =
        submodules.map(|entry| LeftOut::new(entry.path.as_str(), LeftOutReason::Submodule));
    paths.left_out.splice(0..0, submodules);
    Ok((paths, links))
}

impl Repository {
    /// Fetches the source's current commit. Fails if it is younger than the policy allows.
    pub(crate) async fn fetch_repository(access: Access<'_>, source: &GitSource) -> Result<Self> {
        let (pinned, settings) = access.fetcher.git_access(source).await?;
        let resolved = git::resolve_commit(&settings, source, &pinned).await?;
        let checkout =
            git::fetch_commit(&settings, source, &resolved, Depth::Files, &pinned).await?;
        // The date is the committer's claim. The rule delays new releases, but does not stop a
        // forged date.
        access.policy.check_age(
            &source.place,
            checkout.committed,
            access.fetcher.clock.now(),
        )?;
        let links = read_links(&checkout).await?;
        let (paths, links) = skill_paths(&checkout, links).await?;
        Ok(Self {
            source: source.clone(),
            resolved,
            paths,
            links,
            checkout,
            recorded: None,
        })
    }

    /// Records another origin instead of the repository.
    pub(crate) fn recorded_as(self, upstream: Upstream) -> Self {
        Self {
            recorded: Some(upstream),
            ..self
        }
    }

    /// Lists every skill at or below the folder that the source names.
    pub(crate) async fn open_all(self) -> Result<Opened> {
        let when = format!(" at commit {}", short_commit(&self.checkout.commit));
        tree::open_all(Box::new(self), &when).await
    }

    /// Reads each SKILL.md by its object id. The result lacks those that cannot be read.
    async fn read_documents(&self, ids: &[&str]) -> Result<HashMap<String, Vec<u8>>> {
        let mut documents = HashMap::new();
        for chunk in ids.chunks(DOCUMENTS_AT_ONCE) {
            let max = MAX_SKILL_MD_BYTES * chunk.len() as u64;
            match self.checkout.read_blobs(chunk, max).await {
                // The limit is for all of them together, so a large one may be among small ones.
                Ok(read) => documents.extend(
                    read.into_iter()
                        .filter(|(_, text)| text.len() as u64 <= MAX_SKILL_MD_BYTES),
                ),
                // One SKILL.md that is too large must not hide the others.
                Err(FetchError::TooLarge { .. }) => {
                    for id in chunk {
                        let read = self.checkout.read_blobs(&[*id], MAX_SKILL_MD_BYTES).await;
                        documents.extend(read.unwrap_or_default());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(documents)
    }

    /// Reads the files of a skill, and lists the links that were replaced by copies. Fails for
    /// other links and submodules, or if a limit is exceeded. LFS files pass here; the later scan
    /// rejects them.
    async fn read_files(
        &self,
        access: Access<'_>,
        folder: &str,
    ) -> Result<(Vec<RawFile>, Vec<String>)> {
        let place = &self.source.place;
        let mut skill_files = Vec::new();
        for entry in &self.checkout.tree {
            let Some(path) = skill_file(&entry.path, folder) else {
                continue;
            };
            match entry.kind {
                EntryKind::Folder | EntryKind::Link => {}
                EntryKind::File(mode) => skill_files.push((path, mode, entry.id.as_str())),
                EntryKind::Submodule => {
                    let path = escape_untrusted(&entry.path);
                    let reason = format!("{path} is a submodule; a skill holds regular files only");
                    return Err(FetchError::content_error(place, reason));
                }
            }
        }
        let links = self.links.iter().filter_map(|link| {
            let path = skill_file(&link.path, folder)?.to_owned();
            let target = link.target.clone();
            Some(SkillLink { path, target })
        });
        let links: Vec<SkillLink> = links.collect();
        check_file_number((place, folder), skill_files.len() + links.len())?;
        let missing_error = |path: &str| {
            FetchError::content_error(place, format!("{} is missing", escape_untrusted(path)))
        };
        // Check links before the files are read, so that a rejected skill costs no download.
        let names = skill_files
            .iter()
            .map(|(path, _, _)| plain_file(path, Vec::new()));
        let names: Vec<RawFile> = names.collect();
        refuse_links(access, (place, folder), &names, &links)?;
        let ids: Vec<&str> = skill_files.iter().map(|(_, _, id)| *id).collect();
        let contents = self.checkout.read_blobs(&ids, MAX_UNPACKED_BYTES).await?;
        let mut files = Vec::with_capacity(skill_files.len());
        for (path, mode, id) in skill_files {
            let bytes = contents.get(id).cloned();
            let bytes = bytes.ok_or_else(|| missing_error(path))?;
            let path = path.to_owned();
            files.push(RawFile { path, mode, bytes });
        }
        let copied = settle_links(access, (place, folder), &mut files, &links)?;
        Ok((files, copied))
    }

    /// Returns the origin to record for the skill in a folder.
    fn upstream_of(&self, fetcher: &Fetcher, folder: &str) -> Result<Upstream> {
        let tree = self.checkout.tree_id(folder).map(str::to_owned);
        // Record the registry and not the repository: updates have to ask the registry again, which
        // may name another repository by then.
        if let Some(recorded) = &self.recorded {
            return Ok(Upstream {
                // The registry names the repository only, so record the folder of the skill in it.
                path: Some(folder.to_owned()),
                tree,
                ..recorded.clone()
            });
        }
        let source = &self.source;
        let upstream = new_upstream(&source.identifier_of(folder), &self.checkout.commit)?;
        // Record the address only if parsing the identifier yields a different one.
        let default = Source::of_identifier(&upstream.identifier, None, &fetcher.settings.parse);
        let is_default = matches!(&default, Ok(Source::Git(git)) if git.address == source.address);
        Ok(Upstream {
            address: (!is_default).then(|| source.address.clone()),
            path: Some(folder.to_owned()),
            reference: self.resolved.reference.clone(),
            tree,
            ..upstream
        })
    }
}

#[async_trait]
impl Content for Repository {
    async fn take_skill(&self, access: Access<'_>, found: &OfferedSkill) -> Result<FetchedSkill> {
        let folder = &found.folder;
        // The policy may allow only some folders of the repository.
        access
            .policy
            .check_names(&self.source.policy_names(Some(folder)))?;
        let (files, copied_links) = self.read_files(access, folder).await?;
        Ok(FetchedSkill {
            files,
            folder: last_part(folder)
                .or_else(|| self.recorded.as_ref().and_then(registry_slug))
                .or_else(|| last_part(&self.source.place)),
            upstream: Upstream {
                copied_links,
                ..self.upstream_of(access.fetcher, folder)?
            },
        })
    }
}

#[async_trait]
impl Tree for Repository {
    fn place(&self) -> &str {
        &self.source.place
    }

    fn base(&self) -> &str {
        self.resolved.path.as_deref().unwrap_or_default()
    }

    fn skill_paths(&self) -> &SkillPaths {
        &self.paths
    }

    async fn read_file(&self, path: &str, max: u64) -> Result<Option<Vec<u8>>> {
        let mut entries = self.checkout.tree.iter();
        let Some(entry) = entries.find(|entry| entry.path == path) else {
            return Ok(None);
        };
        if !matches!(entry.kind, EntryKind::File(_)) {
            return Ok(None);
        }
        let mut bytes = self.checkout.read_blobs(&[&entry.id], max).await?;
        Ok(bytes.remove(&entry.id))
    }

    async fn open_found(self: Box<Self>, found: Found, base: Option<String>) -> Result<Opened> {
        let entries: HashMap<&str, &str> = self
            .checkout
            .tree
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::File(_)))
            .map(|entry| (entry.path.as_str(), entry.id.as_str()))
            .collect();
        let id_of = |document: &str| entries.get(document).copied();
        let ids: Vec<&str> = found
            .skills
            .iter()
            .filter_map(|(_, document)| id_of(document))
            .collect();
        let documents = self.read_documents(&ids).await?;
        let skills = found.skills.iter().map(|(folder, document)| {
            let id = id_of(document);
            let text = id.and_then(|id| documents.get(id));
            OfferedSkill {
                // Every other file of the commit was read.
                is_too_large: id.is_some() && text.is_none(),
                ..describe_skill(folder, &self.source.place, text.map(Vec::as_slice))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_up_to_a_bound_and_each_text_once() {
        let sizes = [("a", 3), ("b", 4), ("c", 5), ("d", 2), ("e", 5_000)];
        let sizes = sizes.map(|(id, size)| (id.to_owned(), size));
        let sizes: HashMap<String, u64> = sizes.into_iter().collect();
        let ids = vec!["e", "d", "a", "c", "a", "b", "gone"];
        assert_eq!(ids_within(ids, &sizes, 9), ["a", "b", "d"]);
    }
}

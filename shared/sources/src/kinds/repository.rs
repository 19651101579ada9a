//! Repositories: git fetches one commit, and the skills are read from its objects.

use std::sync::Arc;

use async_trait::async_trait;
use vault_format::manifest::SKILL_MD;
use vault_gate::RawFile;
use vault_shelf::DriftState;
use vault_shelf::fetch::{FetchedSkill, Upstream};

use super::batch::{Comparison, share_result};
use super::{Kind, MAX_SKILL_MD_BYTES, describe_skill, join_path, new_upstream, skill_file};
use crate::access::{Access, Fetcher, short_commit};
use crate::archive::{MAX_ARCHIVE_FILES, MAX_UNPACKED_BYTES};
use crate::error::{FetchError, Result, escape_untrusted};
use crate::find;
use crate::git::{self, Checkout, Depth, EntryKind, Resolved, is_commit};
use crate::opened::{Content, OfferedSkill, Opened, last_part};
use crate::source::{GitSource, Source};

/// A git repository as a [`Kind`] of source.
pub(crate) struct Address<'a>(pub(crate) &'a GitSource);

/// One commit of a repository.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(crate) source: GitSource,
    resolved: Resolved,
    pub(crate) checkout: Checkout,
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
        let checkout = share_result(&comparison.batch.trees, asked, fetch).await?;
        match (checkout.tree_id(path), &upstream.tree) {
            (Some(tree), Some(before)) if tree == before => Ok(DriftState::UpToDate),
            (Some(_), _) => Ok(DriftState::Drifted {
                recorded: short_commit(comparison.recorded).to_owned(),
                upstream: short_commit(&checkout.commit).to_owned(),
            }),
            (None, _) => Err(FetchError::NotFound(format!(
                "{} no longer has a folder {path} at commit {}",
                source.place,
                short_commit(&checkout.commit)
            ))),
        }
    }
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
        Ok(Self {
            source: source.clone(),
            resolved,
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

    /// Returns the paths of all regular files.
    pub(crate) fn file_paths(&self) -> impl Iterator<Item = &str> {
        self.checkout
            .tree
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::File(_)))
            .map(|entry| entry.path.as_str())
    }

    /// Lists every skill at or below the folder that the source names.
    pub(crate) async fn open_all(self) -> Result<Opened> {
        let base = self.resolved.path.clone().unwrap_or_default();
        let folders = find::skill_folders(self.file_paths(), &base);
        if folders.is_empty() {
            return Err(FetchError::NotFound(format!(
                "{} holds no SKILL.md at commit {}",
                join_path(&self.source.place, &base).trim_end_matches('/'),
                short_commit(&self.checkout.commit)
            )));
        }
        self.open_folders(folders).await
    }

    /// Lists the skills in these folders.
    pub(crate) async fn open_folders(self, folders: Vec<String>) -> Result<Opened> {
        let documents: Vec<(String, &str)> = folders
            .into_iter()
            .filter_map(|folder| {
                let path = join_path(&folder, SKILL_MD);
                let entry = self.checkout.tree.iter().find(|entry| entry.path == path)?;
                Some((folder, entry.id.as_str()))
            })
            .collect();
        let ids: Vec<&str> = documents.iter().map(|(_, id)| *id).collect();
        // Limit the size of all documents together to that of 200 documents of maximum size.
        let max = MAX_SKILL_MD_BYTES * (ids.len() as u64).min(200);
        let bytes = self.checkout.read_blobs(&ids, max).await?;
        let found = documents
            .iter()
            .map(|(folder, id)| {
                describe_skill(
                    folder,
                    &self.source.place,
                    bytes.get(*id).map(Vec::as_slice),
                )
            })
            .collect();
        Ok(Opened::new(found, self))
    }

    /// Reads the files of a skill. Fails for symbolic links, submodules and LFS files, or if a
    /// limit is exceeded.
    async fn read_files(&self, folder: &str) -> Result<Vec<RawFile>> {
        let place = &self.source.place;
        let mut skill_files = Vec::new();
        for entry in &self.checkout.tree {
            let Some(path) = skill_file(&entry.path, folder) else {
                continue;
            };
            let what = match entry.kind {
                EntryKind::Folder => continue,
                EntryKind::File(mode) => {
                    skill_files.push((path, mode, entry.id.as_str()));
                    continue;
                }
                EntryKind::Link => "a symbolic link",
                EntryKind::Submodule => "a submodule",
            };
            let path = escape_untrusted(&entry.path);
            let reason = format!("{path} is {what}; a skill holds regular files only");
            return Err(FetchError::content_error(place, reason));
        }
        if skill_files.len() > MAX_ARCHIVE_FILES {
            return Err(FetchError::too_large(
                place,
                MAX_ARCHIVE_FILES as u64,
                "files in one skill",
            ));
        }
        let ids: Vec<&str> = skill_files.iter().map(|(_, _, id)| *id).collect();
        let contents = self.checkout.read_blobs(&ids, MAX_UNPACKED_BYTES).await?;
        let files = skill_files.into_iter().map(|(path, mode, id)| {
            let bytes = contents.get(id).cloned().ok_or_else(|| {
                FetchError::content_error(place, format!("{} is missing", escape_untrusted(path)))
            })?;
            // git stores a pointer in place of an LFS file, and signing the pointer would sign the
            // wrong content.
            if bytes.starts_with(b"version https://git-lfs.github.com/spec/") {
                let reason = format!(
                    "{} is in Git LFS, which vault does not fetch",
                    escape_untrusted(path)
                );
                return Err(FetchError::content_error(place, reason));
            }
            Ok(RawFile {
                path: path.to_owned(),
                mode,
                bytes,
            })
        });
        files.collect()
    }

    /// Returns the origin to record for the skill in a folder.
    fn upstream_of(&self, fetcher: &Fetcher, folder: &str) -> Result<Upstream> {
        let tree = self.checkout.tree_id(folder).map(str::to_owned);
        // Record the registry and not the repository: updates have to ask the registry again, which
        // may name another repository by then.
        if let Some(recorded) = &self.recorded {
            return Ok(Upstream {
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
        Ok(FetchedSkill {
            files: self.read_files(folder).await?,
            folder: last_part(folder).or_else(|| last_part(&self.source.place)),
            upstream: self.upstream_of(access.fetcher, folder)?,
        })
    }

    fn base_folder(&self) -> Option<&str> {
        Some(self.resolved.path.as_deref().unwrap_or_default())
    }
}

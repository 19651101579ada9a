//! Opens a source, lists its skills, and downloads one of them.
//!
//! The policy is checked before the first request, on every redirect, and again for the chosen
//! skill. The files, the revision and the recorded origin of a skill always come from the same
//! commit, archive or response.

use std::sync::Arc;

use async_trait::async_trait;
use vault_format::draft;
use vault_format::name::SkillName;
use vault_gate::requirements::VersionRange;
use vault_policy::Policy;
use vault_shelf::DriftState;
use vault_shelf::fetch::{Fetch, FetchFault, FetchedSkill, Upstream};

use crate::access::{Access, Fetcher};
use crate::error::{FetchError, GitFault, Result, escape_untrusted};
use crate::git;
use crate::kinds::{self, Part};
use crate::listing::{ChoiceError, OfferedSkill};
use crate::opened::Opened;
use crate::policy::SourcePolicy;
use crate::source::{GitSource, Source};

impl Fetcher {
    /// Opens a source and lists its skills. `plugin` selects one plugin of a marketplace; without
    /// it, the whole source is listed.
    pub async fn open_source(
        &self,
        source: &Source,
        plugin: Option<&str>,
        policy: &SourcePolicy,
    ) -> Result<Opened> {
        let part = Part { path: None, plugin };
        self.open_part(source, part, policy).await
    }

    /// Opens a source and lists the skills of one part of it: a folder of an archive, or a plugin
    /// of a marketplace.
    pub async fn open_part(
        &self,
        source: &Source,
        part: Part<'_>,
        policy: &SourcePolicy,
    ) -> Result<Opened> {
        kinds::open_checked(self.with_policy(policy), source, part).await
    }

    /// Downloads one skill of an opened source. Fails if the skill contains links or exceeds a size
    /// limit, or if the policy does not allow it.
    pub async fn take_skill(
        &self,
        opened: &Opened,
        found: &OfferedSkill,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill> {
        let access = Access {
            scope: opened.scope,
            copy_links: opened.copy_links,
            ..self.with_policy(policy)
        };
        opened.content.take_skill(access, found).await
    }

    /// Fetches a skill again from its recorded origin, at the recorded reference. If a signer was
    /// recorded (pinned), fails unless the source has a valid signature by that vault, for the same
    /// version or a later one.
    pub async fn fetch_recorded(
        &self,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill> {
        kinds::fetch_recorded(self.with_policy(policy), upstream).await
    }

    /// Returns the tag of a repository with the highest version in a range. Returns `None` for other
    /// sources, which list no versions. Fails if the repository has no such tag.
    pub async fn find_version(
        &self,
        source: &Source,
        range: &VersionRange,
        policy: &SourcePolicy,
    ) -> Result<Option<String>> {
        // The policy decides before every request, and this is one.
        policy.check_source(source)?;
        let Source::Git(repository) = source else {
            return Ok(None);
        };
        let (pinned, settings) = self.git_access(repository).await?;
        let found = git::find_tag(&settings, repository, range, &pinned).await?;
        found.map(Some).ok_or_else(|| {
            let range = escape_untrusted(&range.to_string());
            FetchError::NotFound(format!(
                "{} has no tag with a version in {range}",
                repository.place
            ))
        })
    }

    /// Tells whether a repository has this branch or tag. A full commit id counts as existing
    /// without a check, and any error as missing, so use the result only for hints.
    pub async fn has_reference(&self, source: &GitSource, reference: &str) -> bool {
        let asked = GitSource {
            reference: Some(reference.to_owned()),
            // Look for this reference only, not for references in the tail of a web address.
            tail: Vec::new(),
            ..source.clone()
        };
        match self.git_access(source).await {
            Ok((pinned, settings)) => git::resolve_commit(&settings, &asked, &pinned)
                .await
                .is_ok(),
            Err(_) => false,
        }
    }
}

impl From<FetchError> for FetchFault {
    fn from(error: FetchError) -> Self {
        let text = error.to_string();
        match error {
            FetchError::Policy { .. }
            | FetchError::Unsupported { .. }
            | FetchError::AmbiguousReference { .. } => Self::Refused(text),
            FetchError::NotFound(_)
            | FetchError::NoSkill(_)
            | FetchError::NoneOffered { .. }
            | FetchError::Git {
                fault: GitFault::NoRepository | GitFault::NoReference,
                ..
            } => Self::NotFound(text),
            // A host name with an internal address gives the same kind of fault as one that does
            // not resolve. Callers who see only the kind cannot probe the internal network.
            _ => Self::Unreachable(text),
        }
    }
}

impl Fetcher {
    /// Fetches the skill of this name. Without a name, fetches the one that
    /// [`crate::Listing::unnamed_skill`] selects.
    async fn fetch_one(
        &self,
        source: &Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let policy = SourcePolicy::new(policy);
        let opened = self.open_source(source, None, &policy).await?;
        let listing = &opened.listing;
        let found = match skill {
            Some(name) => listing.find_skill(name.as_str()),
            None => listing.unnamed_skill(),
        };
        let found = found.map_err(|error| {
            // The names come from the source, so limit their number and escape them.
            let join = |names: Vec<&String>| {
                let names = names.into_iter().take(50);
                let names = names.map(|name| escape_untrusted(name));
                names.collect::<Vec<_>>().join(", ")
            };
            let place = source.display_name();
            let names = join(listing.skills.iter().map(|found| &found.name).collect());
            FetchFault::NotFound(match error {
                ChoiceError::Unknown(name) => format!("{place} has no skill {name}: {names}"),
                ChoiceError::Ambiguous { name, folders } => {
                    let folders = join(folders.iter().collect());
                    format!("{place} has several skills named {name}: {folders}")
                }
                ChoiceError::LeftOut(left) => format!(
                    "{place}: {} cannot be taken: {}",
                    escape_untrusted(&left.path),
                    escape_untrusted(&left.reason.to_string())
                ),
                ChoiceError::Incomplete { skill, fault } => format!(
                    "{place} cannot be read whole ({}: {}); name the skill with `skill`: {}",
                    escape_untrusted(&fault.path),
                    escape_untrusted(&fault.reason.to_string()),
                    escape_untrusted(&skill)
                ),
                ChoiceError::Unclear | ChoiceError::TooMany { .. } => {
                    format!("{place} has several skills; name one with `skill`: {names}")
                }
            })
        })?;
        Ok(self.take_skill(&opened, found, &policy).await?)
    }
}

#[async_trait]
impl Fetch for Fetcher {
    async fn fetch(
        &self,
        asked: &draft::Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let reference = asked.reference.as_deref();
        let source = Source::of_identifier(&asked.identifier, reference, &self.settings.parse)
            .map_err(|bad| FetchFault::Refused(bad.to_string()))?;
        self.fetch_one(&source, skill, policy).await
    }

    async fn fetch_text(
        &self,
        source: &str,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let exists = |path: &str| std::path::Path::new(path).symlink_metadata().is_ok();
        let source = Source::parse(source, &self.settings.parse, &exists)
            .map_err(|bad| FetchFault::Refused(bad.to_string()))?;
        self.fetch_one(&source, skill, policy).await
    }

    async fn fetch_again(
        &self,
        upstream: &Upstream,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let policy = SourcePolicy::new(policy);
        Ok(self.fetch_recorded(upstream, &policy).await?)
    }

    async fn compare(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
        policy: Option<&Policy>,
        answer: &mut (dyn FnMut(usize, DriftState) + Send),
    ) {
        let policy = SourcePolicy::new(policy);
        self.compare_all(upstreams, &policy, answer).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_absent_is_reported_as_not_found() {
        let place = || "place".to_owned();
        for wrong in [
            FetchError::too_large("it", 1, "bytes"),
            FetchError::content_error("it", "it is broken"),
            FetchError::Digest {
                place: place(),
                wanted: "a".to_owned(),
                found: "b".to_owned(),
            },
            FetchError::Signer {
                place: place(),
                reason: "it is unsigned".to_owned(),
            },
        ] {
            let fault = FetchFault::from(wrong);
            assert!(matches!(fault, FetchFault::Unreachable(_)), "{fault:?}");
        }
        let absent = FetchFault::from(FetchError::NotFound(place()));
        assert!(matches!(absent, FetchFault::NotFound(_)));
        let inside = FetchFault::from(FetchError::NotPublic(place()));
        assert!(matches!(inside, FetchFault::Unreachable(_)));
    }
}

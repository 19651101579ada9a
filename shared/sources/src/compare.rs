//! Whether a place has something else now than what is recorded of it, by commit and tree, version or digest; never by time.
//!
//! Looking changes nothing. Also here: the port through which the library's shelf fetches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::sync::OnceCell;
use vault_skill::draft::Source as Asked;
use vault_skill::name::SkillName;
use vault_skill::policy::Policy;
use vault_store::fetch::{self, Fetch, FetchFault, FetchedSkill, Upstream};
use vault_store::shelf::DriftState;

use crate::error::FetchError;
use crate::fetcher::{Fetcher, short};
use crate::git::{self, Checkout, Depth, Resolved, is_commit};
use crate::policy::SourcePolicy;
use crate::registry;
use crate::site::{self, Site};
use crate::source::{BadSource, GitSource, Source};

/// The source of what is recorded, at the reference that was asked for then.
pub fn source_of(fetcher: &Fetcher, upstream: &Upstream) -> Result<Source, BadSource> {
    let options = &fetcher.settings.parse;
    let of_identifier =
        || Source::of_identifier(&upstream.identifier, upstream.reference.as_deref(), options);
    let identifier = upstream.identifier.as_str();
    let Some(address) = &upstream.address else {
        let mut source = of_identifier()?;
        if let (Source::Git(git), Some(path)) = (&mut source, &upstream.path) {
            git.path = (!path.is_empty()).then(|| path.clone());
        }
        return Ok(source);
    };
    if identifier.starts_with("wellknown:") {
        let name = identifier.rsplit('/').next().unwrap_or_default();
        return Source::parse(&format!("wellknown:{address}/{name}"), options, &|_| false);
    }
    if identifier.starts_with("https:") {
        return Source::parse(address, options, &|_| false);
    }
    let mut git = GitSource::of_address(address, options)?;
    git.path = upstream.path.clone().filter(|path| !path.is_empty());
    git.reference.clone_from(&upstream.reference);
    Ok(Source::Git(git))
}

/// What one round of questions has found out already: skills of one repository or of one site cost one question together.
#[derive(Debug, Default)]
pub struct Round {
    commits: Answers<Resolved>,
    trees: Answers<Arc<Checkout>>,
    sites: Answers<Arc<Site>>,
}

/// Answers by what was asked; whoever asks while the answer is on its way waits for it.
type Answers<T> = Mutex<HashMap<String, Arc<OnceCell<Result<T, FetchError>>>>>;

async fn once<T: Clone>(
    answers: &Answers<T>,
    question: String,
    ask: impl Future<Output = Result<T, FetchError>>,
) -> Result<T, FetchError> {
    let answer = {
        let mut known = answers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(question).or_default())
    };
    answer.get_or_init(|| ask).await.clone()
}

impl Fetcher {
    /// Says how a place stands to what is recorded of it.
    pub async fn drift(&self, upstream: &Upstream, policy: &SourcePolicy) -> DriftState {
        self.drift_in(&Round::default(), upstream, policy).await
    }

    /// The same as one of several questions under one policy.
    pub async fn drift_in(
        &self,
        round: &Round,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> DriftState {
        match self.look(round, upstream, policy).await {
            Ok(state) => state,
            Err(error) => DriftState::Failed(error.to_string()),
        }
    }

    async fn look(
        &self,
        round: &Round,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> Result<DriftState, FetchError> {
        let unchecked = |why: &str| Ok(DriftState::Unchecked(why.to_owned()));
        let source = match source_of(self, upstream) {
            Ok(source) => source,
            Err(bad) => return unchecked(&bad.to_string()),
        };
        let Some(recorded) = &upstream.revision else {
            return unchecked("nothing is recorded of what it was");
        };
        policy.check(&source)?;
        match &source {
            Source::Git(git) => self.look_at_git(round, git, upstream, recorded).await,
            Source::ClawHub {
                owner,
                slug,
                version,
            } => {
                if version.is_some() {
                    return Ok(DriftState::UpToDate);
                }
                let wanted = registry::Wanted {
                    owner: owner.as_deref(),
                    slug,
                    version: None,
                };
                let latest = registry::latest(self, &wanted, policy).await?;
                Ok(state(recorded, &latest))
            }
            Source::WellKnown { origin, skill } => {
                let open = async { site::open(self, origin, policy).await.map(Arc::new) };
                let site = once(&round.sites, origin.to_string(), open).await?;
                let name = skill.as_deref().unwrap_or_default();
                match site.digest(name)? {
                    Some(digest) => Ok(state(recorded, &digest)),
                    None => self.look_at_bytes(upstream, recorded, policy).await,
                }
            }
            Source::Registry {
                version: Some(_), ..
            } => Ok(DriftState::UpToDate),
            Source::SkillMd(_) | Source::Archive(_) | Source::Registry { .. } => {
                self.look_at_bytes(upstream, recorded, policy).await
            }
            Source::Local(_) | Source::Vault { .. } => {
                unchecked("there is nothing to compare with")
            }
        }
    }

    async fn look_at_git(
        &self,
        round: &Round,
        source: &GitSource,
        upstream: &Upstream,
        recorded: &str,
    ) -> Result<DriftState, FetchError> {
        if upstream.reference.as_deref().is_some_and(is_commit) {
            return Ok(DriftState::UpToDate);
        }
        let (pinned, settings) = self.way_to(source).await?;
        let asked = format!(
            "{} {:?} {:?}",
            source.address, source.reference, source.tail
        );
        let resolve = git::resolve(&settings, source, &pinned);
        let resolved = once(&round.commits, asked.clone(), resolve).await?;
        if resolved.commit == *recorded {
            return Ok(DriftState::UpToDate);
        }
        // The repository moved; whether the skill's own folder did, its tree says.
        let path = upstream.path.as_deref().unwrap_or_default();
        let fetch = async {
            let fetched = git::fetch(&settings, source, &resolved, Depth::Trees, &pinned).await;
            fetched.map(Arc::new)
        };
        let checkout = once(&round.trees, asked, fetch).await?;
        match (checkout.tree_id(path), &upstream.tree) {
            (Some(tree), Some(before)) if tree == before => Ok(DriftState::UpToDate),
            (Some(_), _) => Ok(DriftState::Drifted {
                recorded: short(recorded).to_owned(),
                upstream: short(&checkout.commit).to_owned(),
            }),
            (None, _) => Err(FetchError::NotFound(format!(
                "{} has no folder {path} any more at commit {}",
                source.place,
                short(&checkout.commit)
            ))),
        }
    }

    async fn look_at_bytes(
        &self,
        upstream: &Upstream,
        recorded: &str,
        policy: &SourcePolicy,
    ) -> Result<DriftState, FetchError> {
        let now = self.again(upstream, policy).await?;
        Ok(state(
            recorded,
            now.upstream.revision.as_deref().unwrap_or_default(),
        ))
    }

    /// Fetches a skill again from where it came, at the reference that was asked for then. Fails where it does not carry the signature that
    /// was pinned.
    pub async fn again(
        &self,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> Result<FetchedSkill, FetchError> {
        let source = source_of(self, upstream).map_err(|bad| FetchError::Unsupported {
            message: bad.to_string(),
            hint: "add it again from where it is now".to_owned(),
        })?;
        let opened = self.open(&source, None, policy).await?;
        let folder = upstream.path.as_deref();
        let found = opened
            .found
            .iter()
            .find(|found| folder == Some(found.folder.as_str()))
            .or_else(|| opened.only())
            .ok_or_else(|| {
                FetchError::NotFound(format!(
                    "{} has no folder {} any more",
                    source.shown(),
                    folder.unwrap_or_default()
                ))
            })?;
        let skill = self.take(&opened, found, policy).await?;
        upstream
            .check_pin(&skill.upstream)
            .map_err(|error| FetchError::Signer {
                place: source.shown(),
                reason: error.to_string(),
            })?;
        Ok(skill)
    }
}

fn state(recorded: &str, upstream: &str) -> DriftState {
    if recorded == upstream {
        DriftState::UpToDate
    } else {
        DriftState::Drifted {
            recorded: cut(recorded),
            upstream: cut(upstream),
        }
    }
}

/// A version, or the beginning of a digest.
fn cut(text: &str) -> String {
    match text.strip_prefix("sha256:") {
        Some(digest) => format!("sha256:{}", short(digest)),
        None => crate::error::shown(text),
    }
}

fn fault(error: &FetchError) -> FetchFault {
    let text = error.to_string();
    match error {
        FetchError::Policy { .. } | FetchError::NotPublic(_) | FetchError::Unsupported { .. } => {
            FetchFault::Refused(text)
        }
        FetchError::NotFound(_)
        | FetchError::Content { .. }
        | FetchError::TooLarge { .. }
        | FetchError::Digest { .. }
        | FetchError::Signer { .. } => FetchFault::NotFound(text),
        FetchError::NotAllowed { .. }
        | FetchError::Unreachable { .. }
        | FetchError::Local { .. } => FetchFault::Unreachable(text),
    }
}

impl Fetcher {
    /// Fetches the named skill of a source, or its only one.
    async fn fetch_one(
        &self,
        source: &Source,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let policy = SourcePolicy::new(policy);
        let opened = self
            .open(source, None, &policy)
            .await
            .map_err(|error| fault(&error))?;
        let found = match skill {
            Some(name) => opened
                .pick(&[name.to_string()])
                .ok()
                .and_then(|found| found.first().copied()),
            None => opened.only(),
        };
        let found = found.ok_or_else(|| {
            let names: Vec<String> = opened
                .found
                .iter()
                .take(50)
                .map(|found| crate::error::shown(&found.name))
                .collect();
            let what = match skill {
                Some(name) => format!("{} has no skill {name}", source.shown()),
                None => format!(
                    "{} has several skills; name one with `skill`",
                    source.shown()
                ),
            };
            FetchFault::NotFound(format!("{what}: {}", names.join(", ")))
        })?;
        self.take(&opened, found, &policy)
            .await
            .map_err(|error| fault(&error))
    }
}

#[async_trait]
impl Fetch for Fetcher {
    async fn fetch(
        &self,
        asked: &Asked,
        skill: Option<&SkillName>,
        policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        let source = Source::of_identifier(
            &asked.identifier,
            asked.reference.as_deref(),
            &self.settings.parse,
        )
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
        self.again(upstream, &SourcePolicy::new(policy))
            .await
            .map_err(|error| fault(&error))
    }

    fn round(self: Arc<Self>) -> Arc<dyn fetch::Round> {
        Arc::new(Asking {
            fetcher: self,
            round: Round::default(),
        })
    }
}

/// A round that somebody else asks.
struct Asking {
    fetcher: Arc<Fetcher>,
    round: Round,
}

#[async_trait]
impl fetch::Round for Asking {
    async fn compare(&self, upstream: &Upstream, policy: Option<&Policy>) -> DriftState {
        let policy = SourcePolicy::new(policy);
        self.fetcher.drift_in(&self.round, upstream, &policy).await
    }
}

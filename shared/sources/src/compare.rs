//! Whether a source has something else now than what is recorded of a skill: by commit and tree, version or digest, never by time.
//! Comparing changes nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use vault_store::fetch::Upstream;
use vault_store::shelf::DriftState;

use crate::error::{FetchError, Result, shown};
use crate::fetcher::{Access, Fetcher, short};
use crate::git::{Checkout, Resolved};
use crate::kinds::kind_of;
use crate::kinds::site::Site;
use crate::policy::SourcePolicy;
use crate::source::{BadSource, GitSource, Source};

/// How many sources are asked at a time.
const CONCURRENT: usize = 4;

/// The source of a recorded origin, at the reference that was asked for then.
pub(crate) fn source_of(fetcher: &Fetcher, upstream: &Upstream) -> Result<Source, BadSource> {
    let options = &fetcher.settings.parse;
    let identifier = upstream.identifier.as_str();
    let path = upstream.path.clone().filter(|path| !path.is_empty());
    let reference = upstream.reference.as_deref();
    let Some(address) = &upstream.address else {
        let mut source = Source::of_identifier(&upstream.identifier, reference, options)?;
        if let (Source::Git(git), Some(_)) = (&mut source, &upstream.path) {
            git.path = path;
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
    git.path = path;
    git.reference.clone_from(&upstream.reference);
    Ok(Source::Git(git))
}

/// The answers of one round of comparisons: skills of one repository or one site share its requests.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) commits: Answers<Resolved>,
    pub(crate) trees: Answers<Arc<Checkout>>,
    pub(crate) sites: Answers<Arc<Site>>,
}

/// Answers by question. A second caller waits for an answer that is on its way.
type Answers<T> = Mutex<HashMap<String, Arc<OnceCell<Result<T>>>>>;

/// The answer to a question, asked once in a round.
pub(crate) async fn once<T: Clone>(
    answers: &Answers<T>,
    question: String,
    ask: impl Future<Output = Result<T>>,
) -> Result<T> {
    let answer = {
        let mut known = answers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(question).or_default())
    };
    answer.get_or_init(|| ask).await.clone()
}

/// One question of a round: a skill, and what is recorded of it.
pub(crate) struct Comparison<'a> {
    pub(crate) access: Access<'a>,
    pub(crate) round: &'a Round,
    pub(crate) upstream: &'a Upstream,
    /// The recorded commit, version or digest.
    pub(crate) recorded: &'a str,
}

impl Comparison<'_> {
    /// Compares the recorded revision with the one that the source has now.
    pub(crate) fn with_revision(&self, now: &str) -> DriftState {
        if self.recorded == now {
            return DriftState::UpToDate;
        }
        // A version in full, of a digest the beginning.
        let cut = |text: &str| match text.strip_prefix("sha256:") {
            Some(digest) => format!("sha256:{}", short(digest)),
            None => shown(text),
        };
        DriftState::Drifted {
            recorded: cut(self.recorded),
            upstream: cut(now),
        }
    }

    /// Fetches the skill again and compares its digest.
    pub(crate) async fn by_bytes(&self) -> Result<DriftState> {
        let now = self
            .access
            .fetcher
            .fetch_recorded(self.upstream, self.access.policy);
        let revision = now.await?.upstream.revision.unwrap_or_default();
        Ok(self.with_revision(&revision))
    }
}

impl Fetcher {
    /// Compares skills with their sources, several at a time. `answer` gets each result as it comes, with the index of its question.
    pub async fn compare_all(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
        policy: &SourcePolicy,
        mut answer: impl FnMut(usize, DriftState),
    ) {
        let round = Arc::new(Round::default());
        let slots = Arc::new(tokio::sync::Semaphore::new(CONCURRENT));
        let mut asking = tokio::task::JoinSet::new();
        for (at, upstream) in upstreams.into_iter().enumerate() {
            let (fetcher, policy) = (Arc::clone(&self), policy.clone());
            let (round, slots) = (Arc::clone(&round), Arc::clone(&slots));
            asking.spawn(async move {
                let _slot = slots.acquire().await;
                let state = fetcher.compare_one(&round, &upstream, &policy).await;
                let failed = |error: FetchError| DriftState::Failed(error.to_string());
                (at, state.unwrap_or_else(failed))
            });
        }
        // A task that panicked has no answer, which leaves its skill unchecked.
        while let Some(done) = asking.join_next().await {
            if let Ok((at, state)) = done {
                answer(at, state);
            }
        }
    }

    async fn compare_one(
        &self,
        round: &Round,
        upstream: &Upstream,
        policy: &SourcePolicy,
    ) -> Result<DriftState> {
        let source = match source_of(self, upstream) {
            Ok(source) => source,
            Err(bad) => return Ok(DriftState::Unchecked(bad.to_string())),
        };
        let Some(recorded) = &upstream.revision else {
            let reason = "nothing is recorded of what it was".to_owned();
            return Ok(DriftState::Unchecked(reason));
        };
        policy.check(&source)?;
        let comparison = Comparison {
            access: Access {
                fetcher: self,
                policy,
            },
            round,
            upstream,
            recorded,
        };
        kind_of(&source, None)?.compare(&comparison).await
    }
}

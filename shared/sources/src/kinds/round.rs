//! Comparing skills with their sources: questions of one round share their answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use vault_store::fetch::Upstream;
use vault_store::shelf::DriftState;

use super::fetch_recorded;
use super::index::Site;
use crate::access::{Access, short};
use crate::error::{Result, shown};
use crate::git::{Checkout, Resolved};

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
        let now = fetch_recorded(self.access, self.upstream).await?;
        let revision = now.upstream.revision.unwrap_or_default();
        Ok(self.with_revision(&revision))
    }
}

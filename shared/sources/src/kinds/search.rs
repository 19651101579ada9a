//! Searches the registry that speaks ClawHub's protocol. An answer of a registry names skills and
//! proves nothing about them: what it says of a skill is shown as text, and only fetched files are
//! judged.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::registry::{api_base, api_endpoint};
use super::{MAX_JSON_BYTES, parse_json, parse_object};
use crate::access::Fetcher;
use crate::error::Result;
use crate::policy::SourcePolicy;
use crate::source::{Source, is_slug};

/// Maximum number of results that one search takes from a registry, whatever the registry sends.
pub const MAX_RESULTS: usize = 100;

/// A skill that a registry names in its answer to a search. Its texts are untrusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RegistryResult {
    /// The skill's name in the registry, of which [`RegistryResult::source`] is the source.
    pub slug: String,
    /// The publisher, if the answer names one.
    pub owner: Option<String>,
    /// What the registry says that the skill does.
    pub summary: Option<String>,
}

impl RegistryResult {
    /// Returns the source to fetch the skill from, in its latest version.
    pub fn source(&self) -> Source {
        Source::ClawHub {
            owner: self.owner.clone(),
            slug: self.slug.clone(),
            version: None,
        }
    }
}

/// The answer of a registry to a search.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RegistryResults {
    /// The results in the order of the registry, at most as many as were asked for.
    pub results: Vec<RegistryResult>,
    /// The number of results that the answer has.
    pub found: usize,
    /// The number of results without a usable name among those that were read.
    pub unusable: usize,
}

#[derive(Deserialize)]
struct Answer {
    /// The results are not parsed yet, so that a faulty one does not hide the others.
    #[serde(default)]
    results: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Item {
    slug: String,
    summary: Option<String>,
    #[serde(rename = "ownerHandle")]
    owner: Option<String>,
}

impl Fetcher {
    /// Searches the registry for words, and returns at most `limit` results (never more than
    /// [`MAX_RESULTS`]). Fails without a request if the policy allows no skill of the registry.
    pub async fn search_registry(
        &self,
        words: &str,
        limit: usize,
        policy: &SourcePolicy,
    ) -> Result<RegistryResults> {
        policy.check_registry()?;
        let limit = limit.min(MAX_RESULTS);
        let access = self
            .with_policy(policy)
            .to_base(Some(&self.settings.clawhub));
        let api = api_base(access).await?;
        let mut url = api_endpoint(&api, &["search"])?;
        url.query_pairs_mut()
            .append_pair("q", words)
            .append_pair("limit", &limit.to_string());
        let got = access.fetch_required(&url, MAX_JSON_BYTES).await?;
        let answer: Answer = parse_json(&url, &got.body)?;
        let mut results = RegistryResults {
            found: answer.results.len(),
            ..RegistryResults::default()
        };
        for value in answer.results.iter().take(limit) {
            match parse_result(value) {
                Some(result) => results.results.push(result),
                None => results.unusable += 1,
            }
        }
        Ok(results)
    }
}

/// Returns a result; `None` if its name could not be part of a source.
fn parse_result(value: &RawValue) -> Option<RegistryResult> {
    let item: Item = parse_object(value.get().as_bytes()).ok()?;
    if !is_slug(&item.slug) {
        return None;
    }
    Some(RegistryResult {
        slug: item.slug,
        // A publisher that is no name stays unnamed: the fetch then records the one that the
        // registry names for the skill itself.
        owner: item.owner.filter(|owner| is_slug(owner)),
        summary: item.summary,
    })
}

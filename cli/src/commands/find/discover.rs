//! `vault find`: searches the configured registries and sites, and judges the first results.
//!
//! What a registry or site says of a skill is shown as its words and counts for nothing. A verdict
//! is always that of this machine's gate over the fetched files, and a signer is one whose signature
//! over these files is valid. Everything else is "not judged".

mod results;

use std::collections::VecDeque;

use clap::Args;
use vault_gate::finding::Level;
use vault_library::admit::{self, AdmitError, Neighbours, Options, examine_candidate};
use vault_policy::search::{Ranking, Text};
use vault_sources::{FetchError, MAX_RESULTS, Opened, Source};
use vault_store::clock::{Clock as _, SystemClock};

pub use self::results::Discovery;
use self::results::{DiscoveredSkill, FoundVerdict, Judgement, PlaceStatus, SearchedPlace, render};
use crate::{
    context::Context,
    errors::{Failure, message_chain},
    output::{Report, Warning, clean},
    tasks::fetch::{Fetching, fetch_failure},
};

/// The setting that lists the sites to search.
const SITES: &str = "VAULT_FIND_SITES";
/// Maximum number of sites in the setting.
const MAX_SITES: usize = 20;
/// Maximum length of the words, in bytes. They become part of an address.
const MAX_WORDS: usize = 500;

/// The arguments of `vault find`.
#[derive(Args, Debug)]
#[command(after_help = "\
Asks the registry at VAULT_CLAWHUB_URL and the sites that VAULT_FIND_SITES lists (addresses with a \
well-known index, separated by commas). The registry gets your words; a site only gives its list. \
The policy decides which of them may be asked. Each request takes at most 20 seconds, and a place \
gives at most 100 results.

The first results are fetched and judged by the gate, as `vault add --dry-run` does. What a place \
says of its skills counts for nothing: a skill that was not fetched is \"not judged\". A signer is \
shown if a vault signed exactly these files. Nothing is added.

Places that cannot be asked are named; exit 7 if none could be.

Examples:
  vault find read pdf
  vault find tables --judge 0
  vault find review --limit 20 --judge 20 --json")]
pub struct Arguments {
    /// What to look for; several words are one search
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,
    /// The largest number of results that are shown
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=50))]
    limit: u8,
    /// The number of results, from the first, that are fetched and judged
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=20))]
    judge: u8,
}

/// The answer of a place: its matching skills, and for a site the handle that fetches them.
struct Answer {
    hits: VecDeque<Hit>,
    found: usize,
    unusable: usize,
    site: Option<Opened>,
}

/// A result before it is judged.
struct Hit {
    name: String,
    description: Option<String>,
    source: String,
    skill: Option<String>,
    /// What to open; `None` for a site, which is open already.
    registry: Option<Source>,
}

/// Searches every configured place, shows the results, and judges the first ones.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    context.require_network()?;
    let words = arguments.words.join(" ");
    if words.len() > MAX_WORDS {
        return Err(fail!(Usage, "the words have more than {MAX_WORDS} bytes"));
    }
    let fetching = Fetching::for_search(context)?;
    let search = Search {
        sites: site_sources(context, &fetching)?,
        fetching,
        context,
        words,
    };
    // One event loop for all requests, because they share connections.
    let (places, results) = context.block_on(search.run(arguments))?;
    let text = render(&results, &places);
    let is_answered = places
        .iter()
        .any(|place| place.status == PlaceStatus::Answered);
    let discovery = Discovery { results, places };
    if is_answered {
        return Ok(Report::view(discovery, text));
    }
    Err(fail!(SourceFailed, "no registry or site could be searched").data(discovery))
}

/// Reads the sites of the setting. Fails if one is not the address of a site.
fn site_sources(context: &Context, fetching: &Fetching) -> Result<Vec<(String, Source)>, Failure> {
    let texts = context.settings()?.list(SITES);
    if texts.len() > MAX_SITES {
        return Err(fail!(
            SettingInvalid,
            "{SITES} lists more than {MAX_SITES} sites"
        ));
    }
    let sites =
        texts.into_iter().map(
            |text| match Source::parse(&text, &fetching.options, &|_| false) {
                Ok(source @ Source::WellKnown { .. }) => Ok((text, source)),
                Ok(_) => Err(not_a_site(&text, "it is another kind of source")),
                Err(bad) => Err(not_a_site(&text, &bad.to_string())),
            },
        );
    sites.collect()
}

fn not_a_site(text: &str, reason: &str) -> Failure {
    let (text, reason) = (clean(text, 200), clean(reason, 300));
    fail!(
        SettingInvalid,
        "{text} in {SITES} is not the address of a site: {reason}"
    )
    .hint("list addresses such as https://docs.example.com, separated by commas")
}

struct Search<'c> {
    context: &'c Context,
    fetching: Fetching,
    sites: Vec<(String, Source)>,
    words: String,
}

impl Search<'_> {
    async fn run(
        &self,
        arguments: &Arguments,
    ) -> Result<(Vec<SearchedPlace>, Vec<DiscoveredSkill>), Failure> {
        let ui = &self.context.ui;
        let spinner = ui.start_spinner("Searching registries and sites");
        let asked = self.ask_places().await;
        drop(spinner);
        let (mut places, mut answers) = (Vec::new(), Vec::new());
        for (place, answer) in asked {
            places.push(describe_place(self.context, place, &answer));
            answers.extend(answer.ok());
        }
        let hits = interleave(&mut answers, usize::from(arguments.limit));
        let _spinner = ui.start_spinner("Judging the first results");
        let judged = usize::from(arguments.judge);
        let results = self.judge_hits(hits, &answers, judged).await?;
        Ok((places, results))
    }

    /// Asks every place, one after the other.
    async fn ask_places(&self) -> Vec<(String, Result<Answer, FetchError>)> {
        let fetcher = &self.fetching.fetcher;
        let mut asked = vec![(fetcher.registry_address(), self.ask_registry().await)];
        for (text, site) in &self.sites {
            asked.push((text.clone(), self.ask_site(text, site).await));
        }
        if let Some(older) = fetcher.older_registry_address() {
            let unsupported = FetchError::Unsupported {
                message: "this registry has no search".to_owned(),
                hint: "name its skills: registry:<name>".to_owned(),
            };
            asked.push((older, Err(unsupported)));
        }
        asked
    }

    async fn ask_registry(&self) -> Result<Answer, FetchError> {
        let (fetcher, policy) = (&self.fetching.fetcher, &self.fetching.policy);
        let answer = fetcher
            .search_registry(&self.words, MAX_RESULTS, policy)
            .await?;
        let hits = answer.results.into_iter().map(|result| Hit {
            source: match &result.owner {
                Some(owner) => format!("clawhub:@{owner}/{}", result.slug),
                None => format!("clawhub:{}", result.slug),
            },
            skill: None,
            registry: Some(result.source()),
            name: result.slug,
            description: result.summary,
        });
        Ok(Answer {
            hits: hits.collect(),
            found: answer.found,
            unusable: answer.unusable,
            site: None,
        })
    }

    async fn ask_site(&self, text: &str, site: &Source) -> Result<Answer, FetchError> {
        let (fetcher, policy) = (&self.fetching.fetcher, &self.fetching.policy);
        let opened = fetcher.open_source(site, None, policy).await?;
        for notice in &opened.notices {
            let mut warning = Warning::new("source_notice", clean(notice, 400));
            warning.path = Some(clean(text, 200));
            self.context.ui.warn(warning);
        }
        let skills = &opened.listing.skills;
        let ranking = Ranking::new(skills.iter().map(|skill| Text {
            name: &skill.name,
            description: skill.description.as_deref().unwrap_or_default(),
            tags: &[],
            categories: &[],
            when_to_use: "",
        }));
        let found = ranking.rank(&self.words);
        let hits = found.iter().take(MAX_RESULTS).map(|hit| {
            let skill = &skills[hit.position];
            Hit {
                name: skill.name.clone(),
                description: skill.description.clone(),
                source: text.to_owned(),
                skill: Some(skill.name.clone()),
                registry: None,
            }
        });
        Ok(Answer {
            hits: hits.collect(),
            found: found.len(),
            unusable: opened.listing.left_out.len(),
            site: Some(opened),
        })
    }

    /// Judges the first results, and leaves the others unjudged.
    async fn judge_hits(
        &self,
        hits: Vec<(usize, Hit)>,
        answers: &[Answer],
        number: usize,
    ) -> Result<Vec<DiscoveredSkill>, Failure> {
        let vault = self.context.existing_vault()?;
        let strict = self.context.is_strict()?;
        let mut neighbours = Neighbours::new(vault.as_ref(), SystemClock.now());
        let mut results = Vec::new();
        for (at, (place, hit)) in hits.into_iter().enumerate() {
            let judgement = if at < number {
                let site = answers[place].site.as_ref();
                match self.take(&hit, site).await {
                    Ok(source) => judge(source, strict, &mut neighbours),
                    Err(error) => Judgement::not_judged(&message_chain(&error)),
                }
            } else {
                Judgement::default()
            };
            let description = hit.description.map(|text| text.chars().take(300).collect());
            results.push(DiscoveredSkill {
                name: hit.name,
                description,
                source: hit.source,
                skill: hit.skill,
                judgement,
            });
        }
        Ok(results)
    }

    async fn take(&self, hit: &Hit, site: Option<&Opened>) -> Result<admit::Source, FetchError> {
        let (fetcher, policy) = (&self.fetching.fetcher, &self.fetching.policy);
        let from_registry = match &hit.registry {
            Some(source) => Some(fetcher.open_source(source, None, policy).await?),
            None => None,
        };
        let opened = from_registry.as_ref().or(site);
        let found = opened.and_then(|opened| {
            let found = match &hit.skill {
                Some(name) => opened.listing.find_skill(name),
                None => opened.listing.unnamed_skill(),
            };
            Some((opened, found.ok()?))
        });
        let (opened, found) = found.ok_or_else(|| {
            FetchError::NotFound(format!("{} is not a single skill there", hit.name))
        })?;
        let skill = fetcher.take_skill(opened, found, policy).await?;
        Ok(admit::Source::Fetched(Box::new(skill)))
    }
}

/// Creates the entry of a place, and warns if it could not be asked.
fn describe_place(
    context: &Context,
    place: String,
    answer: &Result<Answer, FetchError>,
) -> SearchedPlace {
    let (status, found, unusable, reason) = match answer {
        Ok(answer) => (PlaceStatus::Answered, answer.found, answer.unusable, None),
        Err(error) => {
            let status = match error {
                FetchError::Policy { .. } => PlaceStatus::Refused,
                FetchError::Unsupported { .. } => PlaceStatus::NoSearch,
                _ => PlaceStatus::Failed,
            };
            let failure = fetch_failure(error);
            (status, 0, 0, Some(clean(&failure.message, 400)))
        }
    };
    let shown = clean(&place, 200);
    match (&reason, status) {
        (Some(reason), PlaceStatus::Failed) => {
            let text = format!("{shown} was not searched: {reason}");
            context.ui.warn(Warning::new("source_failed", text));
        }
        (Some(reason), _) => context.ui.note(format!("{shown} was not asked: {reason}")),
        (None, _) => {}
    }
    SearchedPlace {
        place,
        status,
        found,
        unusable,
        reason,
    }
}

/// Takes the first result of each place, then the second of each, and so on, so that a place with
/// many results hides no other. Returns at most `limit`, each with the index of its place.
fn interleave(answers: &mut [Answer], limit: usize) -> Vec<(usize, Hit)> {
    let mut hits = Vec::new();
    loop {
        let before = hits.len();
        for (place, answer) in answers.iter_mut().enumerate() {
            if hits.len() == limit {
                return hits;
            }
            hits.extend(answer.hits.pop_front().map(|hit| (place, hit)));
        }
        if hits.len() == before {
            return hits;
        }
    }
}

/// Runs the gate on fetched files.
fn judge(source: admit::Source, strict: bool, neighbours: &mut Neighbours<'_>) -> Judgement {
    let upstream = match &source {
        admit::Source::Fetched(skill) => Some(skill.upstream.clone()),
        _ => None,
    };
    let options = Options {
        strict,
        ..Options::default()
    };
    let (verdict, findings) = match examine_candidate(source, &options, neighbours) {
        Ok(candidate) => {
            let findings = candidate.package.findings;
            let is_warned = findings.iter().any(|finding| finding.level > Level::Note);
            let verdict = if is_warned {
                FoundVerdict::Warnings
            } else {
                FoundVerdict::Accepted
            };
            (verdict, findings)
        }
        Err(AdmitError::Blocked { findings }) => (FoundVerdict::Blocked, findings),
        Err(error) => return Judgement::not_judged(&message_chain(&error)),
    };
    Judgement {
        verdict,
        reason: None,
        findings,
        signer: upstream
            .as_ref()
            .and_then(|upstream| upstream.signer)
            .map(|signer| signer.to_string()),
        revision: upstream.and_then(|upstream| upstream.revision),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_hides_the_results_of_another() {
        let answer = |names: &[&str]| Answer {
            hits: names
                .iter()
                .map(|name| Hit {
                    name: (*name).to_owned(),
                    description: None,
                    source: String::new(),
                    skill: None,
                    registry: None,
                })
                .collect(),
            found: names.len(),
            unusable: 0,
            site: None,
        };
        for (limit, expected) in [
            (1, vec!["a0"]),
            (4, vec!["a0", "b0", "a1", "a2"]),
            (9, vec!["a0", "b0", "a1", "a2", "a3"]),
        ] {
            let mut answers = [
                answer(&["a0", "a1", "a2", "a3"]),
                answer(&[]),
                answer(&["b0"]),
            ];
            let hits = interleave(&mut answers, limit);
            let names: Vec<_> = hits.iter().map(|(_, hit)| hit.name.as_str()).collect();
            assert_eq!(names, expected);
        }
    }
}

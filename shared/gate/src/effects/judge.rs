//! Decides which ways through the graph are findings: whose the address is, and what the value is
//! used for.

use super::graph::{Index, Place, Reached, Sink, State};
use super::program::{Call, Program};
use super::stores::{FETCHED, STORES, Store};
use super::{EffectHit, Source};
use crate::finding::{Finding, Level, Step, View};
use crate::rule::{Act, ScanRule};
use crate::rules::effects::{CODE_CUT, FETCHED_RUN, SECRET_SENT};
use crate::rules::hosts::{self, Url, urls};
use crate::rules::installers::is_known_installer;
use std::collections::{BTreeSet, HashMap};
use vault_format::text::Position;

pub(super) struct Judge<'a> {
    pub sources: &'a [Source<'a>],
    pub publisher: &'a [String],
    pub index: &'a Index<'a>,
    pub program: &'a Program,
}

/// Findings so far, and their places.
#[derive(Default)]
struct Found {
    hits: Vec<EffectHit>,
    places: BTreeSet<(usize, Place)>,
}

/// Whose an address is. The worst of several counts.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Party {
    /// The value may go there, or come from there.
    Own,
    Publisher,
    Foreign,
}

/// What a finding says besides its rule.
struct Chain<'a> {
    /// What it does, unless the address or the kind of secret makes it less.
    act: Act,
    what: &'a str,
    /// Words for the first and the last step.
    verbs: [&'static str; 2],
    first: Place,
    last: Place,
    /// All places from the first to the last.
    steps: Vec<Place>,
}

/// Hosts from whose releases programs are installed.
const CODE_HOSTS: [&str; 5] = [
    "github.com",
    "githubusercontent.com",
    "gitlab.com",
    "codeberg.org",
    "bitbucket.org",
];
/// Endings of scripts.
const SCRIPTS: [&str; 9] = ["sh", "bash", "zsh", "py", "js", "mjs", "cjs", "ts", "rb"];
/// Commands and calls of scripts that check what they fetch.
const CHECKS: [&str; 12] = [
    "sha256sum",
    "sha512sum",
    "b2sum",
    "shasum",
    "sha256 -",
    "dgst -sha",
    "--verify",
    "cosign ",
    "minisign ",
    "get-filehash",
    "hashlib.",
    "createhash",
];
/// Parts of the path at which a service stores what anybody uploads with a key of their own.
const STORAGE: [&str; 7] = [
    "/files",
    "/gists",
    "/issues",
    "/contents",
    "/comments",
    "/upload",
    "/releases",
];
/// Largest number of findings of a rule and an act.
const MOST_HITS: usize = 16;
/// Largest number of steps that a finding lists: those at the beginning and at the end.
const MOST_STEPS: usize = 8;

impl Judge<'_> {
    /// Finds secrets that are sent away.
    pub(super) fn find_thefts(&self) -> Vec<EffectHit> {
        let mut found = Found::default();
        let idle = self.idle_calls();
        let graph = &self.program.graph;
        let kinds: BTreeSet<usize> = graph.sources.iter().map(|source| source.kind).collect();
        for kind in kinds {
            let Some(store) = STORES.get(kind) else {
                continue;
            };
            let reached = self.index.search(kind);
            for sink in &graph.sinks {
                let call = self.program.calls[sink.kind];
                if !matches!(call, Call::Sends | Call::SendsFile) || idle[sink.kind] {
                    continue;
                }
                let mut states = reached.at(sink);
                let way =
                    states.find_map(|state| Some((state, self.receiver(sink, state, store)?)));
                if let Some((state, party)) = way {
                    let verbs = ["read", "sent"];
                    let chain = chain_of(&reached, state, sink, (store.name, verbs));
                    self.push_hits(&SECRET_SENT, (party, kind), &chain, &mut found);
                }
            }
        }
        found.hits
    }

    /// Finds content that is fetched and run.
    pub(super) fn find_fetched(&self) -> Vec<EffectHit> {
        let mut found = Found::default();
        let mut sources = self.program.graph.sources.iter();
        if !sources.any(|source| source.kind == FETCHED) {
            return Vec::new();
        }
        // Each file is read once, however many calls it has.
        let mut unchecked = HashMap::new();
        let reached = self.index.search(FETCHED);
        for sink in &self.program.graph.sinks {
            let call = self.program.calls[sink.kind];
            if !matches!(call, Call::Runs | Call::RunsFile) {
                continue;
            }
            let mut states = reached.at(sink);
            // The name of a program may be fetched; that alone runs nothing new.
            let way = states.find(|state| call == Call::Runs || !state.is_content);
            let Some(state) = way else {
                continue;
            };
            let party = self.parties(reached.root(state), |url| {
                is_known_installer(url) || hosts::is_local(&url.host)
            });
            if party == Party::Own {
                continue;
            }
            let mut chain = chain_of(&reached, state, sink, ("a download", ["fetched", "run"]));
            let is_certain = chain.first.file == chain.last.file
                && *unchecked
                    .entry(chain.first.file)
                    .or_insert_with(|| self.is_unchecked_script(chain.first.file))
                && self.is_elsewhere(reached.root(state), call);
            let act = if is_certain {
                Act::Block
            } else {
                FETCHED_RUN.act
            };
            chain.act = act;
            self.push_hits(&FETCHED_RUN, (party, FETCHED), &chain, &mut found);
        }
        found.hits
    }

    /// Whether a file is a script that has no word of a check of what it fetches.
    fn is_unchecked_script(&self, file: u32) -> bool {
        let source = &self.sources[file as usize];
        let ending = source
            .path
            .rsplit_once('.')
            .map_or("", |(_, ending)| ending);
        let is_script = SCRIPTS.contains(&ending) || source.raw.starts_with("#!");
        if !is_script {
            return false;
        }
        // A comment checks nothing.
        let mut lines = source.raw.lines().map(str::trim_start);
        lines.all(|line| {
            let line = line.to_ascii_lowercase();
            line.starts_with('#')
                || line.starts_with("//")
                || !CHECKS.iter().any(|word| line.contains(word))
        })
    }

    /// Whether all addresses behind a value are known, and none of them is the publisher's, a
    /// known installer's, local or an example. A program from the releases of a code host is
    /// installed like this, too; its text is not run by itself.
    fn is_elsewhere(&self, target: u32, call: Call) -> bool {
        let Some(texts) = self.index.texts_behind(target) else {
            return false;
        };
        let mut urls = texts
            .iter()
            .flat_map(|text| urls(text.as_bytes()))
            .peekable();
        urls.peek().is_some()
            && urls.all(|url| {
                let is_below = |domain: &&str| url.host.is_below(domain);
                url.host.is_sure()
                    && !is_known_installer(&url)
                    && !hosts::is_local(&url.host)
                    && !hosts::is_documentation(&url.host)
                    && (call == Call::Runs || !CODE_HOSTS.iter().any(is_below))
                    && !hosts::is_of_publisher(&url, self.publisher)
            })
    }

    /// Calls that send only on a connection, and are not made on one.
    fn idle_calls(&self) -> Vec<bool> {
        let program = self.program;
        let connected = self.index.descendants(&program.connections, &[]);
        // What is made with an address may be anything, so it is not followed into other calls.
        let made = self.index.descendants(&program.made, &program.arguments);
        let mut idle = vec![false; program.calls.len()];
        for (receiver, number) in &program.if_connected {
            let receiver = *receiver as usize;
            idle[*number] = !connected[receiver] && !made[receiver];
        }
        for (receiver, number) in &program.if_known {
            idle[*number] = !connected[*receiver as usize];
        }
        for (receiver, number) in &program.if_made {
            idle[*number] = !made[*receiver as usize];
        }
        idle
    }

    /// Whose address a call sends to; `None` if the secret may go there.
    fn receiver(&self, sink: &Sink, state: State, store: &Store) -> Option<Party> {
        // One environment variable is no secret of somebody else. A token in a header is
        // used, wherever the service is. A whole file in one is not.
        if state.is_narrow && store.is_environment()
            || state.is_header
                && (state.is_narrow || store.is_token())
                && self.may_sign_in(sink.target, store)
        {
            return None;
        }
        let party = self.parties(sink.target, |url| {
            let mut services = store.services.iter();
            // A service also stores what anybody uploads.
            let is_stored = !state.is_header && STORAGE.iter().any(|at| url.path.contains(at));
            hosts::is_local(&url.host)
                || !is_stored && services.any(|domain| url.host.is_below(domain))
        });
        let is_whole = |text: &str| {
            !text.starts_with('$') && urls(text.as_bytes()).any(|url| url.host.is_sure())
        };
        match party {
            Party::Own if self.index.is_open(sink.target, is_whole) => Some(Party::Foreign),
            Party::Own => None,
            party => Some(party),
        }
    }

    /// Whether a part of a secret may sign in at the addresses behind a value.
    fn may_sign_in(&self, target: u32, store: &Store) -> bool {
        if store.is_key {
            return false;
        }
        let Some(texts) = self.index.texts_behind(target) else {
            return false;
        };
        let mut hosts = texts.iter().flat_map(|text| urls(text.as_bytes()));
        hosts.all(|url| {
            let is_nobody = hosts::is_public_address(&url.host) || url.host.is_open();
            !is_nobody && (store.domains.is_empty() || url.host.is_of(store.domains))
        })
    }

    /// Whose the addresses behind a value are. An unknown one is foreign.
    fn parties(&self, target: u32, is_own: impl Fn(&Url<'_>) -> bool) -> Party {
        let Some(texts) = self.index.texts_behind(target) else {
            return Party::Foreign;
        };
        let mut worst = None;
        for text in &texts {
            // A socket of the web is at an address like any other.
            let text = text
                .replace("wss://", "https://")
                .replace("ws://", "http://");
            for url in urls(text.as_bytes()) {
                let party = if is_own(&url) {
                    Party::Own
                } else if hosts::is_of_publisher(&url, self.publisher) {
                    Party::Publisher
                } else {
                    Party::Foreign
                };
                worst = worst.max(Some(party));
            }
        }
        if worst.is_none() {
            // Without any address, hosts without a scheme count; all must be known.
            let named = texts.iter().flat_map(|text| hosts::named(text.as_bytes()));
            let is_named = named.map(|url| is_own(&url));
            let is_local = texts
                .iter()
                .filter(|text| **text == "localhost")
                .map(|_| true);
            let owns: Vec<bool> = is_named.chain(is_local).collect();
            if !owns.is_empty() && owns.iter().all(|own| *own) {
                return Party::Own;
            }
        }
        worst.unwrap_or(Party::Foreign)
    }

    /// Adds a finding where the value is used; and one where it begins, if that is another file, so
    /// that an exception needs the bytes of both.
    fn push_hits(
        &self,
        rule: &'static ScanRule,
        (party, kind): (Party, usize),
        chain: &Chain<'_>,
        found: &mut Found,
    ) {
        let act = match (chain.act, party) {
            // A deployment names, reads and copies its settings, too.
            (Act::Block, _) if STORES.get(kind).is_some_and(Store::is_settings) => Act::Hint(0),
            (Act::Block, Party::Publisher) => Act::Warn,
            (act, _) => act,
        };
        // More of them would say nothing new, and a place is found by reading its file.
        if found.hits.iter().filter(|hit| hit.1 == act).count() > MOST_HITS {
            return;
        }
        // The rules about lines know whether a command in a sentence is a quotation.
        let span = self.span_of(chain.last);
        if span.is_some() && span == self.span_of(chain.first) {
            return;
        }
        let other = (chain.first.file != chain.last.file).then_some(chain.first);
        for at in [Some(chain.last), other].into_iter().flatten() {
            if found.places.insert((kind, at)) {
                found.hits.push((rule, act, self.finding(rule, chain, at)));
            }
        }
    }

    /// Returns the number of the command between back ticks in prose that has this place.
    fn span_of(&self, place: Place) -> Option<usize> {
        let spans = &self.program.spans;
        let at = (place.file, place.offset as usize);
        let next = spans.partition_point(|(file, start, _)| (*file, *start) <= at);
        let last = next.checked_sub(1)?;
        let (file, _, end) = spans[last];
        (file == at.0 && at.1 < end).then_some(last)
    }

    fn finding(&self, rule: &'static ScanRule, chain: &Chain<'_>, at: Place) -> Finding {
        let [first, last] = chain.verbs;
        let message = format!(
            "{}: {} ({first} at {}, {last} at {})",
            rule.message,
            chain.what,
            self.name_place(chain.first),
            self.name_place(chain.last)
        );
        self.finding_at(rule, message, at).over(self.steps(chain))
    }

    /// Says that the code is not followed from this place on.
    pub(super) fn cut_finding(&self, at: Place) -> Finding {
        self.finding_at(&CODE_CUT, CODE_CUT.message.to_owned(), at)
    }

    fn finding_at(&self, rule: &'static ScanRule, message: String, at: Place) -> Finding {
        let source = &self.sources[at.file as usize];
        let offset = source.raw.floor_char_boundary(at.offset as usize);
        let line = source.raw[offset..].lines().next().unwrap_or_default();
        Finding::of(&rule.rule, Level::Warning, message)
            .at(source.path)
            .quoting(View::Raw, line)
            .hint(rule.advice())
            .on(Position::of_offset(source.raw, offset))
    }

    /// The lines of a chain, each once.
    fn steps(&self, chain: &Chain<'_>) -> Vec<Step> {
        let mut places = chain.steps.clone();
        places.dedup();
        // The line of a place is found by reading its file, so only those that are shown.
        if places.len() > 4 * MOST_STEPS {
            let end = places.split_off(places.len() - 2 * MOST_STEPS);
            places.truncate(2 * MOST_STEPS);
            places.extend(end);
        }
        let mut steps: Vec<Step> = Vec::new();
        for place in &places {
            let source = &self.sources[place.file as usize];
            let offset = source.raw.floor_char_boundary(place.offset as usize);
            let step = Step {
                path: source.path.to_owned(),
                line: Position::of_offset(source.raw, offset).line,
                what: "passed on",
            };
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        }
        if steps.len() > MOST_STEPS {
            let end = steps.split_off(steps.len() - MOST_STEPS / 2);
            steps.truncate(MOST_STEPS / 2);
            steps.extend(end);
        }
        if let Some(last) = steps.last_mut() {
            last.what = chain.verbs[1];
        }
        if let Some(first) = steps.first_mut() {
            first.what = chain.verbs[0];
        }
        steps
    }

    fn name_place(&self, place: Place) -> String {
        let source = &self.sources[place.file as usize];
        let offset = source.raw.floor_char_boundary(place.offset as usize);
        let line = Position::of_offset(source.raw, offset).line;
        format!("{}:{line}", source.path)
    }
}

fn chain_of<'a>(
    reached: &Reached,
    state: State,
    sink: &Sink,
    (what, verbs): (&'a str, [&'static str; 2]),
) -> Chain<'a> {
    let steps = reached.steps(state);
    Chain {
        act: Act::Block,
        what,
        verbs,
        first: steps.first().copied().unwrap_or(sink.place),
        last: sink.place,
        steps: steps.into_iter().chain([sink.place]).collect(),
    }
}

//! A policy in its compiled form, and the grants (what a caller may use) that follow from it.
//!
//! A policy is compiled once. Its groups (named sets of skills, tools and MCP servers) are
//! numbered, and a grant is a set of those numbers. Checking one skill then takes one look-up by
//! its name and one for each of its tags, so a server can check a thousand skills on each call.

use super::file::{Caller, Channel, Policy, PolicyError, Rule};
use super::pattern::Pattern;
use crate::search::{MAX_QUERY_WORDS, split_words};
use regex::RegexSet;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use vault_format::hash::Digest;
use vault_format::name::SkillName;

mod grant;

use grant::GroupSet;
pub use grant::{Grant, View};

/// The longest query that context rules are matched against, in bytes. A caller with a longer query
/// is granted nothing, since a rule that removes groups might have matched it.
pub const MAX_QUERY_BYTES: usize = 2048;

/// The caller whose grant is wanted, with platform and channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker<'a> {
    /// The ids of the caller: at `/mcp` the user's e-mail, then the client id. The first one that
    /// the policy names decides. E-mails are compared without regard to ASCII case.
    pub callers: &'a [&'a str],
    /// The profile that an owner bound to the user at the service. It is used if the policy names
    /// no profile for the caller. If the policy does not define it, the caller gets nothing.
    pub bound_profile: Option<&'a str>,
    /// Platform on which the caller works, for example `mcp`, `cli`, `slack`.
    pub platform: &'a str,
    /// Channel on the platform; `None` if there is none.
    pub channel: Option<&'a str>,
}

/// What a grant is computed for. It decides which context rules (groups added or removed if the
/// query matches an expression) apply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach<'a> {
    /// Lists, and searches without a query: no rule applies.
    List,
    /// A query: the rules whose expression matches it apply, in the order of the file.
    Query(&'a str),
    /// A fetch by name, and resources: all rules for the profile and platform add their groups,
    /// since some query could grant them. No rule removes anything.
    Fetch,
}

/// A compiled policy: immutable, cheap to clone, and to be cached under [`CompiledPolicy::hash`].
#[derive(Clone, Debug)]
pub struct CompiledPolicy(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    hash: Option<Digest>,
    policy: Policy,
    /// Names of the groups, in order. The index of a group is its number.
    names: Vec<String>,
    profiles: HashMap<String, GroupSet>,
    /// Keys of the callers that are e-mails, by their lower-case form.
    emails: HashMap<String, String>,
    rules: Vec<CompiledRule>,
    expressions: RegexSet,
    /// The groups that hold every skill (`*`).
    whole: GroupSet,
    by_name: HashMap<String, Vec<usize>>,
    by_tag: HashMap<String, Vec<usize>>,
    /// The groups by their names and aliases. Each key is a name split into words as a query is and
    /// joined with spaces.
    phrases: HashMap<String, Vec<usize>>,
    /// The lengths of the keys of `phrases`, in words.
    phrase_lengths: BTreeSet<usize>,
    disabled: Vec<Pattern>,
}

#[derive(Debug)]
struct CompiledRule {
    platforms: Option<HashSet<String>>,
    profiles: Option<HashSet<String>>,
    add: Vec<usize>,
    remove: Vec<usize>,
}

impl CompiledRule {
    fn applies_to(&self, profile: &str, platform: &str) -> bool {
        let within = |names: &Option<HashSet<String>>, name: &str| {
            names.as_ref().is_none_or(|names| names.contains(name))
        };
        within(&self.profiles, profile) && within(&self.platforms, platform)
    }
}

impl CompiledPolicy {
    /// Compiles a policy. Its hash is that of the object that [`Policy::to_object`] writes. Fails
    /// if the expressions of its rules, compiled together, are too large; that never happens to a
    /// policy that was read from a file or an object.
    pub fn new(policy: Policy) -> Result<Self, PolicyError> {
        let hash = Digest::of(&policy.to_object());
        Inner::new(policy, hash).map(|inner| Self(Arc::new(inner)))
    }

    /// Reads and compiles the policy object of a release. The hash is that of these bytes. Fails if
    /// [`Policy::from_object`] rejects them.
    pub fn from_object(bytes: &[u8]) -> Result<Self, PolicyError> {
        let policy = Policy::from_object(bytes)?;
        Inner::new(policy, Digest::of(bytes)).map(|inner| Self(Arc::new(inner)))
    }

    /// Returns the policy of a vault that has none: it grants nothing to anybody.
    pub fn absent() -> Self {
        Self(Arc::default())
    }

    /// SHA-256 of the `vault.policy/1` object; `None` without a policy.
    pub fn hash(&self) -> Option<Digest> {
        self.0.hash
    }

    /// The policy that this was compiled from; an empty one if there is none.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// Returns the names of all groups that hold this skill, in order, whether or not a caller is
    /// granted them. Only owners may see the result.
    pub fn groups_holding<T: AsRef<str>>(&self, name: &SkillName, tags: &[T]) -> Vec<&str> {
        let numbers = self
            .0
            .group_numbers_of_skill(name.as_str(), tags)
            .into_iter();
        numbers
            .filter_map(|number| self.0.names.get(number).map(String::as_str))
            .collect()
    }

    /// Returns what this caller may use: nothing if the policy gives them no profile.
    pub fn grant_for(&self, asker: &Asker<'_>, reach: Reach<'_>) -> Grant {
        self.decide_grant(asker, reach).grant
    }

    /// Returns the grant and the steps that led to it, for an explanation.
    pub(super) fn decide_grant<'p>(&'p self, asker: &Asker<'p>, reach: Reach<'_>) -> Decision<'p> {
        let inner = &*self.0;
        let named_caller = inner.find_caller(asker.callers);
        let named = named_caller.and_then(|(_, caller)| caller.profile.as_deref());
        let base = inner.base_of(named, asker);
        // The channel comes after the profile: a channel's profile replaces the caller's in this
        // channel only.
        let channel = named_caller.and_then(|(_, caller)| channel_of(caller, asker));
        let profile = channel
            .and_then(|channel| channel.profile.as_deref())
            .or(base.profile());
        let mut decision = Decision {
            caller: named_caller.map_or_else(
                || asker.callers.first().copied().unwrap_or_default(),
                |(id, _)| id,
            ),
            is_named: named_caller.is_some(),
            base,
            channel,
            rules: Vec::new(),
            query_too_long: matches!(reach, Reach::Query(query) if query.len() > MAX_QUERY_BYTES),
            grant: Grant::without_access(self),
        };
        // Without a profile nothing below can add a group: an unknown caller stays without access
        // even if a rule would match.
        let Some((profile, groups)) = profile
            .filter(|_| !decision.query_too_long)
            .and_then(|profile| Some((profile, inner.profiles.get(profile)?)))
        else {
            return decision;
        };
        let mut groups = groups.clone();
        if let Some(channel) = channel {
            groups.change(
                &inner.group_numbers(channel.add_groups.as_deref()),
                &inner.group_numbers(channel.remove_groups.as_deref()),
            );
        }
        decision.rules = inner.apply_rules(reach, profile, asker.platform, &mut groups);
        decision.grant = Grant::of(self, profile, groups);
        decision
    }

    /// Returns the numbers of the groups that a query mentions by name or alias.
    pub(super) fn groups_mentioned(&self, query: &str) -> BTreeSet<usize> {
        // Split the query like the ranking does, so that a group and its skills match the same
        // words.
        let words: Vec<String> = split_words(query).take(MAX_QUERY_WORDS).collect();
        let inner = &*self.0;
        let mut called = BTreeSet::new();
        for length in inner
            .phrase_lengths
            .iter()
            .take_while(|length| **length <= words.len())
        {
            for phrase in words.windows(*length) {
                called.extend(inner.phrases.get(&phrase.join(" ")).into_iter().flatten());
            }
        }
        called
    }
}

/// Returns the channel entry that applies: among those for this platform, the first with the exact
/// channel, else the first with `*`.
fn channel_of<'p>(caller: &'p Caller, asker: &Asker<'_>) -> Option<&'p Channel> {
    let here = || {
        caller
            .channels
            .iter()
            .flatten()
            .filter(|entry| entry.platform == asker.platform)
    };
    here()
        .find(|entry| asker.channel == Some(entry.channel.as_str()))
        .or_else(|| here().find(|entry| entry.channel == "*"))
}

impl Inner {
    fn new(policy: Policy, hash: Digest) -> Result<Self, PolicyError> {
        let mut inner = Self {
            hash: Some(hash),
            names: policy
                .groups
                .iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect(),
            expressions: policy.compile_expressions()?,
            disabled: parse_patterns(
                policy
                    .always
                    .as_ref()
                    .and_then(|always| always.disabled_tools.as_deref()),
            ),
            ..Self::default()
        };
        inner.whole = GroupSet::none(inner.names.len());
        for (number, (name, group)) in policy.groups.iter().flatten().enumerate() {
            for skill in group.skills.iter().flatten() {
                match skill.strip_prefix("tag:") {
                    Some(tag) => push_number(
                        &mut inner.by_tag,
                        fold_case(tag.trim()).into_owned(),
                        number,
                    ),
                    None if skill == "*" => inner.whole.insert(number),
                    None => push_number(&mut inner.by_name, skill.clone(), number),
                }
            }
            for text in std::iter::once(name).chain(group.aliases.iter().flatten()) {
                // Of a query, only [`MAX_QUERY_WORDS`] words are compared, so a longer phrase could
                // never match.
                let words: Vec<String> = split_words(text).take(MAX_QUERY_WORDS + 1).collect();
                if (1..=MAX_QUERY_WORDS).contains(&words.len()) {
                    inner.phrase_lengths.insert(words.len());
                    push_number(&mut inner.phrases, words.join(" "), number);
                }
            }
        }
        for (name, profile) in policy.profiles.iter().flatten() {
            let mut groups = GroupSet::none(inner.names.len());
            for group in profile.groups.iter().flatten() {
                // Group names are fixed when the policy is compiled, so `*` is expanded once.
                if group == "*" {
                    groups = GroupSet::all(inner.names.len());
                }
            }
            groups.change(&inner.group_numbers(profile.groups.as_deref()), &[]);
            inner.profiles.insert(name.clone(), groups);
        }
        for id in policy
            .callers
            .iter()
            .flat_map(|callers| callers.keys())
            .rev()
        {
            if id.contains('@') {
                // Of keys that differ only in case, the first in byte order wins.
                inner.emails.insert(id.to_ascii_lowercase(), id.clone());
            }
        }
        let set = |names: &Option<Vec<String>>| {
            names.as_ref().map(|names| names.iter().cloned().collect())
        };
        inner.rules = policy
            .rules
            .iter()
            .flatten()
            .map(|rule: &Rule| CompiledRule {
                platforms: set(&rule.platforms),
                profiles: set(&rule.profiles),
                add: inner.group_numbers(rule.add_groups.as_deref()),
                remove: inner.group_numbers(rule.remove_groups.as_deref()),
            })
            .collect();
        inner.policy = policy;
        Ok(inner)
    }

    /// Decides which profile a caller has and why. `named` is the profile in the policy's entry for
    /// the caller.
    fn base_of<'p>(&'p self, named: Option<&'p str>, asker: &Asker<'p>) -> ProfileOrigin<'p> {
        match (named, asker.bound_profile, &self.policy.default_profile) {
            // A profile in the owner's signed policy takes precedence over one that only the
            // service stores.
            (Some(profile), _, _) => ProfileOrigin::Named(profile),
            (None, Some(profile), _) if self.profiles.contains_key(profile) => {
                ProfileOrigin::Bound(profile)
            }
            // A bound profile that was removed from the policy gives nothing: the default profile
            // could grant more than the owner intended for this user.
            (None, Some(profile), _) => ProfileOrigin::BoundUnknown(profile),
            (None, None, Some(profile)) => ProfileOrigin::Default(profile),
            (None, None, None) => ProfileOrigin::None,
        }
    }

    /// Changes the groups by the rules that apply. Returns the numbers of these rules.
    fn apply_rules(
        &self,
        reach: Reach<'_>,
        profile: &str,
        platform: &str,
        groups: &mut GroupSet,
    ) -> Vec<usize> {
        let mut applied = Vec::new();
        let holding = |(_, rule): &(usize, &CompiledRule)| rule.applies_to(profile, platform);
        match reach {
            Reach::List => {}
            Reach::Query(query) => {
                // One pass over the query for all rules. The set returns them in the order of the
                // file, in which later rules override earlier ones.
                for number in &self.expressions.matches(query) {
                    let rule = &self.rules[number];
                    if holding(&(number, rule)) {
                        groups.change(&rule.add, &rule.remove);
                        applied.push(number);
                    }
                }
            }
            // A skill that a query has shown must be readable afterwards, when the query is not
            // known any more.
            Reach::Fetch => {
                for (number, rule) in self.rules.iter().enumerate().filter(holding) {
                    // A rule does not grant a group that it also removes.
                    let gone: HashSet<&usize> = rule.remove.iter().collect();
                    let add: Vec<usize> = rule
                        .add
                        .iter()
                        .filter(|group| !gone.contains(group))
                        .copied()
                        .collect();
                    groups.change(&add, &[]);
                    applied.push(number);
                }
            }
        }
        applied
    }

    /// Returns the numbers of the groups with these names. Names that no group has are left out.
    fn group_numbers(&self, names: Option<&[String]>) -> Vec<usize> {
        names
            .unwrap_or_default()
            .iter()
            .filter_map(|name| self.names.binary_search(name).ok())
            .collect()
    }

    /// Returns the first of these ids that the policy names, as the caller wrote it, with its entry
    /// in the policy.
    fn find_caller<'p>(&'p self, ids: &[&'p str]) -> Option<(&'p str, &'p Caller)> {
        let callers = self.policy.callers.as_ref()?;
        ids.iter().find_map(|id| {
            let caller = callers.get(*id).or_else(|| {
                let key = id
                    .contains('@')
                    .then(|| self.emails.get(&id.to_ascii_lowercase()))??;
                callers.get(key)
            })?;
            Some((*id, caller))
        })
    }

    /// Returns the numbers of the groups that hold this skill, in rising order, each once.
    fn group_numbers_of_skill<T: AsRef<str>>(&self, name: &str, tags: &[T]) -> BTreeSet<usize> {
        let by_tag = tags
            .iter()
            .filter_map(|tag| self.by_tag.get(&*fold_case(tag.as_ref().trim())));
        self.whole
            .iter()
            .chain(
                self.by_name
                    .get(name)
                    .into_iter()
                    .chain(by_tag)
                    .flatten()
                    .copied(),
            )
            .collect()
    }
}

fn push_number(map: &mut HashMap<String, Vec<usize>>, key: String, number: usize) {
    let numbers = map.entry(key).or_default();
    // Groups are added in order, so if a number is already in the list, it is the last one.
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}

/// Folds the case of a tag. Profiles compare tags in the same form.
fn fold_case(tag: &str) -> Cow<'_, str> {
    // Almost every tag is lower-case ASCII and needs no copy.
    if tag
        .bytes()
        .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    {
        Cow::Borrowed(tag)
    } else {
        Cow::Owned(tag.to_lowercase())
    }
}

fn parse_patterns(texts: Option<&[String]>) -> Vec<Pattern> {
    texts
        .unwrap_or_default()
        .iter()
        .map(|text| Pattern::new(text))
        .collect()
}

/// A grant with the steps that led to it, for an explanation.
#[derive(Debug)]
pub(super) struct Decision<'p> {
    /// The id that decided: the first that the policy names, else the first of the caller's ids.
    pub(super) caller: &'p str,
    pub(super) is_named: bool,
    pub(super) base: ProfileOrigin<'p>,
    pub(super) channel: Option<&'p Channel>,
    /// Numbers of the rules that applied, from 0.
    pub(super) rules: Vec<usize>,
    pub(super) query_too_long: bool,
    pub(super) grant: Grant,
}

/// How a caller came to a profile, before the channel's entry changes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ProfileOrigin<'p> {
    Named(&'p str),
    Bound(&'p str),
    BoundUnknown(&'p str),
    Default(&'p str),
    None,
}

impl<'p> ProfileOrigin<'p> {
    const fn profile(self) -> Option<&'p str> {
        match self {
            Self::Named(profile) | Self::Bound(profile) | Self::Default(profile) => Some(profile),
            Self::BoundUnknown(_) | Self::None => None,
        }
    }
}

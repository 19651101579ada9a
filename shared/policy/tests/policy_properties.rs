//! What a policy grants, against a second opinion that is written down from the rules and knows
//! nothing of ours.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_policy::search::Text;
use vault_policy::{
    Asker, Capabilities, CompiledPolicy, Grant, Input, MAX_QUERY_BYTES, Policy, Reach,
    resolve_capabilities,
};

const GROUPS: [&str; 5] = ["a", "b", "c", "d", "e"];
const PROFILES: [&str; 3] = ["p", "q", "r"];
const CALLERS: [&str; 3] = ["ann@x", "bob", "eve"];
const PLATFORMS: [&str; 2] = ["cli", "mcp"];
const CHANNELS: [&str; 3] = ["C1", "C2", "*"];
const SKILLS: [&str; 6] = ["s1", "s2", "s3", "s4", "s5", "s6"];
const TAGS: [&str; 3] = ["t1", "t2", "t3"];
const WORDS: [&str; 4] = ["deploy", "review", "s1", "a"];
const TOOLS: [&str; 5] = ["Bash", "Web*", "*", "WebFetch", "g.*"];

/// A policy in plain parts: the second opinion reads these, ours reads the text made of them.
#[derive(Clone, Debug, Default)]
struct Plain {
    default: Option<&'static str>,
    /// Groups, or everything.
    profiles: BTreeMap<&'static str, Vec<&'static str>>,
    /// Patterns of skills, tools.
    groups: BTreeMap<&'static str, (Vec<String>, Vec<&'static str>)>,
    callers: BTreeMap<&'static str, (Option<&'static str>, Vec<Entry>)>,
    rules: Vec<Rule>,
    always: Vec<&'static str>,
    disabled: Vec<&'static str>,
}

#[derive(Clone, Debug)]
struct Entry {
    platform: &'static str,
    channel: &'static str,
    profile: Option<&'static str>,
    add: Vec<&'static str>,
    remove: Vec<&'static str>,
}

#[derive(Clone, Debug)]
struct Rule {
    word: &'static str,
    platforms: Option<Vec<&'static str>>,
    profiles: Option<Vec<&'static str>>,
    add: Vec<&'static str>,
    remove: Vec<&'static str>,
}

fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(of.to_vec(), 0..=of.len().min(3))
}

fn plain() -> impl Strategy<Value = Plain> {
    let patterns = subsequence(
        SKILLS
            .iter()
            .map(ToString::to_string)
            .chain(TAGS.iter().map(|tag| format!("tag:{tag}")))
            .collect::<Vec<_>>(),
        0..4,
    );
    let patterns = prop_oneof![9 => patterns, 1 => Just(vec!["*".to_owned()])];
    let groups = prop::collection::vec((patterns, some(&TOOLS)), GROUPS.len());
    let profile = prop_oneof![5 => some(&GROUPS), 1 => Just(vec!["*"])];
    let profiles = prop::collection::vec(profile, PROFILES.len());
    let entry = (
        select(&PLATFORMS[..]),
        select(&CHANNELS[..]),
        prop::option::weighted(0.3, select(&PROFILES[..])),
        some(&GROUPS),
        some(&GROUPS),
    )
        .prop_map(|(platform, channel, profile, add, remove)| Entry {
            platform,
            channel,
            profile,
            add,
            remove,
        });
    let caller = (
        select(&CALLERS[..2]),
        prop::option::weighted(0.8, select(&PROFILES[..])),
        prop::collection::vec(entry, 0..4),
    );
    let rule = (
        select(&WORDS[..]),
        prop::option::of(some(&PLATFORMS)),
        prop::option::of(some(&PROFILES)),
        some(&GROUPS),
        some(&GROUPS),
    )
        .prop_map(|(word, platforms, profiles, add, remove)| Rule {
            word,
            platforms,
            profiles,
            add,
            remove,
        });
    (
        prop::option::of(select(&PROFILES[..])),
        profiles,
        groups,
        prop::collection::vec(caller, 0..3),
        prop::collection::vec(rule, 0..5),
        some(&TOOLS),
        some(&TOOLS),
    )
        .prop_map(
            |(default, profiles, groups, callers, rules, always, disabled)| Plain {
                default,
                profiles: PROFILES.into_iter().zip(profiles).collect(),
                groups: GROUPS.into_iter().zip(groups).collect(),
                callers: callers
                    .into_iter()
                    .map(|(id, profile, entries)| (id, (profile, entries)))
                    .collect(),
                rules,
                always,
                disabled,
            },
        )
}

fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<String> = items
        .iter()
        .map(|item| format!("\"{}\"", item.as_ref()))
        .collect();
    format!("[{}]", items.join(", "))
}

impl Plain {
    /// The tables of `policy.toml`, one text each; rules stay together.
    fn tables(&self) -> Vec<String> {
        let mut tables = Vec::new();
        for (name, groups) in &self.profiles {
            tables.push(format!("[profiles.{name}]\ngroups = {}\n", list(groups)));
        }
        for (name, (skills, tools)) in &self.groups {
            tables.push(format!(
                "[groups.{name}]\nskills = {}\ntools = {}\n",
                list(skills),
                list(tools)
            ));
        }
        for (id, (profile, entries)) in &self.callers {
            let mut table = format!("[callers.\"{id}\"]\n");
            if let Some(profile) = profile {
                table.push_str(&format!("profile = \"{profile}\"\n"));
            }
            for entry in entries {
                table.push_str(&format!(
                    "[[callers.\"{id}\".channels]]\nplatform = \"{}\"\nchannel = \"{}\"\nadd_groups = {}\nremove_groups = {}\n",
                    entry.platform, entry.channel, list(&entry.add), list(&entry.remove)
                ));
                if let Some(profile) = entry.profile {
                    table.push_str(&format!("profile = \"{profile}\"\n"));
                }
            }
            tables.push(table);
        }
        let mut rules = String::new();
        for rule in &self.rules {
            rules.push_str(&format!(
                "[[rules]]\nwhen = \"{}\"\nadd_groups = {}\nremove_groups = {}\n",
                rule.word,
                list(&rule.add),
                list(&rule.remove)
            ));
            for (key, names) in [("platforms", &rule.platforms), ("profiles", &rule.profiles)] {
                if let Some(names) = names {
                    rules.push_str(&format!("{key} = {}\n", list(names)));
                }
            }
        }
        tables.push(rules);
        tables.push(format!(
            "[always]\ntools = {}\ndisabled_tools = {}\n",
            list(&self.always),
            list(&self.disabled)
        ));
        tables
    }

    fn text(&self, turned: usize) -> String {
        let mut tables = self.tables();
        let count = tables.len();
        tables.rotate_left(turned % count);
        if turned % 2 == 1 {
            tables.reverse();
        }
        let default = self
            .default
            .map(|name| format!("default_profile = \"{name}\"\n"))
            .unwrap_or_default();
        default + &tables.concat()
    }

    fn compiled(&self) -> CompiledPolicy {
        CompiledPolicy::new(Policy::from_toml(&self.text(0)).unwrap()).unwrap()
    }

    /// The same without one group, wherever it is named.
    fn without(&self, group: &str) -> Self {
        let mut less = self.clone();
        let drop = |names: &mut Vec<&'static str>| names.retain(|name| *name != group);
        less.groups.remove(group);
        less.profiles.values_mut().for_each(drop);
        for (_, entries) in less.callers.values_mut() {
            for entry in entries {
                drop(&mut entry.add);
                drop(&mut entry.remove);
            }
        }
        for rule in &mut less.rules {
            drop(&mut rule.add);
            drop(&mut rule.remove);
        }
        less
    }
}

/// A question, owned.
#[derive(Clone, Debug)]
struct Question {
    callers: Vec<&'static str>,
    bound: Option<&'static str>,
    platform: &'static str,
    channel: Option<&'static str>,
    query: Option<String>,
    catalog: Option<Digest>,
}

fn question() -> impl Strategy<Value = Question> {
    (
        subsequence(CALLERS.to_vec(), 0..=2),
        prop::option::weighted(0.3, select(&["p", "q", "gone"][..])),
        select(&PLATFORMS[..]),
        prop::option::of(select(&["C1", "C2", "C3"][..])),
        prop::option::of(some(&WORDS).prop_map(|words| words.join(" "))),
        prop::option::of(any::<[u8; 32]>().prop_map(Digest::from_bytes)),
    )
        .prop_map(
            |(callers, bound, platform, channel, query, catalog)| Question {
                callers,
                bound,
                platform,
                channel,
                query,
                catalog,
            },
        )
}

fn skills() -> impl Strategy<Value = Vec<(&'static str, Vec<String>)>> {
    prop::collection::vec(some(&TAGS), SKILLS.len()).prop_map(|tags| {
        SKILLS
            .into_iter()
            .zip(
                tags.into_iter()
                    .map(|tags| tags.into_iter().map(str::to_owned).collect()),
            )
            .collect()
    })
}

type Skills = Vec<(&'static str, Vec<String>)>;

impl Question {
    fn asker(&self) -> Asker<'_> {
        Asker {
            callers: &self.callers,
            bound_profile: self.bound,
            platform: self.platform,
            channel: self.channel,
        }
    }

    fn ask(&self, policy: &CompiledPolicy, skills: &Skills) -> Capabilities {
        let texts: Vec<Text<'_>> = skills
            .iter()
            .map(|(name, tags)| Text {
                name,
                description: "deploy and review",
                tags,
                categories: &[],
                when_to_use: "",
            })
            .collect();
        resolve_capabilities(&Input {
            policy,
            catalog: self.catalog,
            asker: self.asker(),
            query: self.query.as_deref(),
            skills: &texts,
        })
    }
}

/// The second opinion: profile and groups, straight from the rules of the page.
fn naive(
    plain: &Plain,
    question: &Question,
    fetch: bool,
) -> Option<(&'static str, BTreeSet<&'static str>)> {
    let entry = question.callers.iter().find_map(|id| plain.callers.get(id));
    let channel = entry.and_then(|(_, entries)| {
        let mut best = None;
        for entry in entries
            .iter()
            .filter(|entry| entry.platform == question.platform)
        {
            let exact = Some(entry.channel) == question.channel;
            match best {
                None if exact || entry.channel == "*" => best = Some((exact, entry)),
                Some((false, _)) if exact => best = Some((true, entry)),
                _ => {}
            }
        }
        best.map(|(_, entry)| entry)
    });
    let own = entry.and_then(|(profile, _)| *profile);
    let base = match (own, question.bound) {
        (Some(own), _) => Some(own),
        (None, Some(bound)) => PROFILES.contains(&bound).then_some(bound),
        (None, None) => plain.default,
    };
    let profile = channel.and_then(|channel| channel.profile).or(base)?;
    let mut groups: BTreeSet<&str> = plain.profiles[profile].iter().copied().collect();
    if groups.contains("*") {
        groups = plain.groups.keys().copied().collect();
    }
    if let Some(channel) = channel {
        groups.extend(&channel.add);
        groups.retain(|group| !channel.remove.contains(group));
    }
    for rule in &plain.rules {
        let fits = rule
            .platforms
            .as_ref()
            .is_none_or(|names| names.contains(&question.platform))
            && rule
                .profiles
                .as_ref()
                .is_none_or(|names| names.contains(&profile));
        if fits && fetch {
            groups.extend(rule.add.iter().filter(|group| !rule.remove.contains(group)));
        } else if fits
            && question
                .query
                .as_ref()
                .is_some_and(|query| query.contains(rule.word))
        {
            groups.extend(&rule.add);
            groups.retain(|group| !rule.remove.contains(group));
        }
    }
    Some((profile, groups))
}

fn holds(plain: &Plain, group: &str, (name, tags): &(&'static str, Vec<String>)) -> bool {
    plain.groups[group].0.iter().any(|pattern| {
        pattern == "*" || pattern == name || tags.iter().any(|tag| *pattern == format!("tag:{tag}"))
    })
}

fn visible(plain: &Plain, groups: &BTreeSet<&str>, skills: &Skills) -> BTreeSet<&'static str> {
    skills
        .iter()
        .filter(|skill| groups.iter().any(|group| holds(plain, group, skill)))
        .map(|(name, _)| *name)
        .collect()
}

fn allowed(grant: &Grant, skills: &Skills) -> BTreeSet<&'static str> {
    skills
        .iter()
        .filter(|(name, tags)| grant.allows(&name.parse::<SkillName>().unwrap(), tags))
        .map(|(name, _)| *name)
        .collect()
}

fn names(answer: &Capabilities) -> BTreeSet<&str> {
    answer
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_caller_gets_what_the_rules_say_and_nothing_else(plain in plain(), question in question(), skills in skills()) {
        let policy = plain.compiled();
        let answer = question.ask(&policy, &skills);
        let reach = question.query.as_deref().map_or(Reach::List, Reach::Query);
        let (grant, fetch) = (policy.grant_for(&question.asker(), reach), policy.grant_for(&question.asker(), Reach::Fetch));
        let (wide, said) = (naive(&plain, &question, true), naive(&plain, &question, false));
        let none = BTreeSet::new();
        let groups = said.as_ref().map_or(&none, |(_, groups)| groups);
        prop_assert_eq!(answer.profile.as_deref(), said.as_ref().map(|(profile, _)| *profile));
        prop_assert_eq!(names(&answer), visible(&plain, groups, &skills));
        prop_assert_eq!(allowed(&grant, &skills), visible(&plain, groups, &skills));
        prop_assert_eq!(&grant.groups().collect::<BTreeSet<_>>(), groups);
        prop_assert_eq!(allowed(&fetch, &skills), visible(&plain, wide.as_ref().map_or(&none, |(_, groups)| groups), &skills));
        prop_assert!(allowed(&policy.grant_for(&question.asker(), Reach::List), &skills).is_subset(&allowed(&fetch, &skills)), "what is listed can be fetched");
        prop_assert!(names(&answer).is_subset(&allowed(&fetch, &skills)), "what is found can be fetched");
        for skill in &answer.skills {
            let own = skills.iter().find(|(name, _)| *name == skill.name).unwrap();
            let holding: Vec<&str> = groups.iter().copied().filter(|group| holds(&plain, group, own)).collect();
            prop_assert_eq!(&skill.groups, &holding);
        }
        prop_assert!(answer.matched_groups.iter().all(|group| groups.contains(group.as_str())));
        // No word of the answer is the name of a skill that is not granted, whatever the question's
        // own words are.
        let text = serde_json::to_string(&(&answer.skills, &answer.tools, &answer.mcp_servers, &answer.matched_groups, &answer.reasons)).unwrap();
        for (name, _) in &skills {
            prop_assert!(names(&answer).contains(name) || !text.contains(name), "{} in {}", name, text);
        }
    }

    #[test]
    fn tools_are_those_of_the_groups_without_the_disabled_ones(plain in plain(), question in question()) {
        let grant = plain.compiled().grant_for(&question.asker(), Reach::List);
        let mut listed = Question { query: None, ..question.clone() };
        listed.catalog = None;
        let said = naive(&plain, &listed, false);
        let stands = |pattern: &str, tool: &str| match pattern.split_once('*') {
            None => pattern == tool,
            Some((begin, end)) => tool.len() >= begin.len() + end.len() && tool.starts_with(begin) && tool.ends_with(end),
        };
        let tools = grant.tools();
        for tool in ["Bash", "WebFetch", "Web", "g.x", "Edit"] {
            let expected = said.as_ref().is_some_and(|(_, groups)| {
                groups.iter().flat_map(|group| &plain.groups[group].1).chain(&plain.always).any(|pattern| stands(pattern, tool))
                    && !plain.disabled.iter().any(|pattern| stands(pattern, tool))
            });
            prop_assert_eq!(grant.allows_tool(tool), expected, "{}", tool);
            // The list says the same to who reads it as the page says.
            let by_list = tools.iter().any(|pattern| stands(pattern, tool)) && !tools.iter().filter_map(|pattern| pattern.strip_prefix('!')).any(|pattern| stands(pattern, tool));
            prop_assert_eq!(by_list, expected, "{} in {:?}", tool, tools);
        }
    }

    #[test]
    fn who_is_unknown_gets_nothing_without_a_default(mut plain in plain(), question in question(), skills in skills()) {
        plain.default = None;
        let stranger = Question { callers: vec!["eve", "mallory@x"], bound: question.bound.filter(|name| *name == "gone"), ..question };
        let answer = stranger.ask(&plain.compiled(), &skills);
        prop_assert!(answer.skills.is_empty() && answer.tools.is_empty() && answer.mcp_servers.is_empty() && answer.matched_groups.is_empty());
        prop_assert_eq!(answer.profile, None);
        prop_assert!(!answer.reasons.is_empty());
        let fetch = plain.compiled().grant_for(&stranger.asker(), Reach::Fetch);
        prop_assert!(allowed(&fetch, &skills).is_empty() && !fetch.allows_tool("Bash"));
    }

    #[test]
    fn removing_a_group_never_adds_a_skill(plain in plain(), question in question(), skills in skills(), group in select(&GROUPS[..])) {
        let (more, less) = (question.ask(&plain.compiled(), &skills), question.ask(&plain.without(group).compiled(), &skills));
        prop_assert!(names(&less).is_subset(&names(&more)), "{:?} {:?}", names(&less), names(&more));
    }

    #[test]
    fn the_order_of_tables_and_skills_does_not_matter(plain in plain(), question in question(), mut skills in skills(), turned in 0_usize..20) {
        let answer = question.ask(&plain.compiled(), &skills);
        let turned = Policy::from_toml(&plain.text(turned)).unwrap();
        let object = CompiledPolicy::from_object(&turned.to_object()).unwrap();
        let written = Policy::from_toml(&turned.to_toml());
        prop_assert_eq!(written.as_ref().ok(), Some(&turned), "{}", turned.to_toml());
        let turned = CompiledPolicy::new(turned).unwrap();
        prop_assert_eq!(&answer, &question.ask(&turned, &skills));
        prop_assert_eq!(&answer, &question.ask(&object, &skills), "the copy of a release says the same, with the same key");
        skills.reverse();
        prop_assert_eq!(&answer, &question.ask(&turned, &skills));
    }

    #[test]
    fn another_question_has_another_key(one in plain(), other in plain(), first in question(), second in question(), skills in skills()) {
        let (policy, another) = (one.compiled(), other.compiled());
        let key = |policy: &CompiledPolicy, question: &Question| question.ask(policy, &skills).cache_key;
        let same = |one: &Question, other: &Question| format!("{one:?}") == format!("{other:?}");
        prop_assert_eq!(key(&policy, &first), key(&policy, &first));
        prop_assert_eq!(key(&policy, &first) == key(&policy, &second), same(&first, &second));
        let policies = Policy::from_toml(&one.text(0)).unwrap() == Policy::from_toml(&other.text(0)).unwrap();
        prop_assert_eq!(key(&policy, &first) == key(&another, &first), policies);
        // Each part alone, the nearest other value it could have.
        let mut callers = first.clone();
        callers.callers.push("mallory");
        let bound = Question { bound: Some(if first.bound == Some("p") { "q" } else { "p" }), ..first.clone() };
        let platform = Question { platform: if first.platform == "cli" { "mcp" } else { "cli" }, ..first.clone() };
        let channel = Question { channel: Some(if first.channel == Some("") { "x" } else { "" }), ..first.clone() };
        let query = Question { query: Some(first.query.clone().unwrap_or_default() + " "), ..first.clone() };
        let catalog = Question { catalog: Some(Digest::of(b"another")), ..first.clone() };
        let keys: BTreeSet<Digest> = [&first, &callers, &bound, &platform, &channel, &query, &catalog].map(|question| key(&policy, question)).into();
        prop_assert_eq!(keys.len(), 7);
    }
}

#[test]
fn hostile_policies_cost_what_their_length_says() {
    // A matcher that goes back, or that tries all pairs, would not end within the life of the test.
    let stars = "a*".repeat(5_000);
    let names: Vec<String> = (0..1_000).map(|number| format!("\"g{number}\"")).collect();
    let groups = (0..1_000).fold(String::new(), |text, number| {
        text + &format!(
            "[groups.g{number}]\nskills = [\"tag:t\"]\naliases = [\"x x x {number}\"]\n"
        )
    });
    let rules = "[[rules]]\nwhen = \"(a|aa)+b\"\nadd_groups = [\"g1\"]\n".repeat(500);
    let text = format!(
        "default_profile = \"p\"\n[profiles.p]\ngroups = [{}]\n{groups}{rules}[always]\ntools = [\"{stars}\", \"*\"]\ndisabled_tools = [\"{stars}b\"]\n",
        names.join(",")
    );
    let policy = CompiledPolicy::new(Policy::from_toml(&text).unwrap()).unwrap();
    let tags = ["t".to_owned()];
    let texts: Vec<(String, &[String])> = (0..200)
        .map(|number| (format!("skill-{number}"), &tags[..]))
        .collect();
    let skills: Vec<Text<'_>> = texts
        .iter()
        .map(|(name, tags)| Text {
            name,
            description: "x",
            tags,
            categories: &[],
            when_to_use: "",
        })
        .collect();
    let query = "a".repeat(MAX_QUERY_BYTES);
    let input = Input {
        policy: &policy,
        catalog: None,
        asker: Asker::default(),
        query: Some(&query),
        skills: &skills,
    };
    let answer = resolve_capabilities(&input);
    assert_eq!(answer.skills.len(), 200);
    assert!(
        !policy
            .grant_for(&Asker::default(), Reach::List)
            .allows_tool(&("a".repeat(100_000) + "b"))
    );
}

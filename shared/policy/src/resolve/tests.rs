use super::*;
use crate::{Grant, Policy};
use vault_format::name::SkillName;

const POLICY: &str = r#"
default_profile = "restricted"

[profiles.reviewers]
groups = ["review"]
[profiles.restricted]
groups = ["public"]
[profiles.all]
groups = ["*"]

[groups.review]
skills = ["code-review", "tag:git"]
tools = ["Bash", "github.*"]
mcp_servers = ["github"]
aliases = ["pr", "pull request"]
[groups.public]
skills = ["tag:public"]
[groups.ops]
skills = ["release-notes"]
tools = ["*"]

[callers."ann@example.com"]
profile = "reviewers"
channels = [{ platform = "slack", channel = "*", add_groups = ["public"], remove_groups = [] },
            { platform = "slack", channel = "C042", profile = "restricted" }]
[callers.nobody]
channels = [{ platform = "slack", channel = "C1", add_groups = ["ops"] }]

[[rules]]
when = "(?i)deploy|release"
platforms = ["cli"]
profiles = ["reviewers"]
add_groups = ["ops"]
[[rules]]
when = "secret"
remove_groups = ["review"]

[mcp_servers.github]
url = "https://mcp.example/github"

[always]
tools = ["Read"]
disabled_tools = ["Web*"]
"#;

fn compiled(text: &str) -> CompiledPolicy {
    CompiledPolicy::new(Policy::from_toml(text).unwrap()).unwrap()
}

/// Name, description and tags of each skill.
const SKILLS: [(&str, &str, &[&str]); 5] = [
    ("code-review", "Reviews a change before it is merged.", &[]),
    ("git-basics", "Commits and branches.", &["Git"]),
    ("hello", "Says hello.", &["public"]),
    ("hidden", "Reviews what nobody may see.", &["internal"]),
    ("release-notes", "Writes the notes of a release.", &[]),
];

fn asked(
    policy: &CompiledPolicy,
    callers: &[&str],
    bound: Option<&str>,
    at: (&str, Option<&str>),
    query: Option<&str>,
) -> Capabilities {
    let tags: Vec<Vec<String>> = SKILLS
        .iter()
        .map(|(_, _, tags)| tags.iter().map(ToString::to_string).collect())
        .collect();
    let skills: Vec<Text<'_>> = SKILLS
        .iter()
        .zip(&tags)
        .map(|((name, description, _), tags)| Text {
            name,
            description,
            tags,
            categories: &[],
            when_to_use: "",
        })
        .collect();
    let asker = Asker {
        callers,
        bound_profile: bound,
        platform: at.0,
        channel: at.1,
    };
    resolve_capabilities(&Input {
        policy,
        catalog: None,
        asker,
        query,
        skills: &skills,
    })
}

fn names(capabilities: &Capabilities) -> Vec<&str> {
    capabilities
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        .collect()
}

/// One case in each line, separated by `;`: callers, bound profile, platform and channel, query,
/// and the expected profile with its skills.
const GRANTED: &str = "
    ann@example.com; ; cli; x; reviewers: code-review git-basics
    Ann@Example.com; ; cli; x; reviewers: code-review git-basics
    x@y ann@example.com; ; cli; x; reviewers: code-review git-basics
    ann@example.com; all; cli; x; reviewers: code-review git-basics
  # rules: platform, profile, query
    ann@example.com; ; cli; Release it; reviewers: release-notes code-review git-basics
    ann@example.com; ; cli; ; reviewers: code-review git-basics
    ann@example.com; ; mcp; Release it; reviewers: code-review git-basics
    ann@example.com; ; cli; secret release; reviewers: release-notes
    bob@example.com; ; cli; release; restricted: hello
  # channels: the exact one though it stands last, `*` for any other and for none
    ann@example.com; ; slack C042; x; restricted: hello
    ann@example.com; ; slack C9; x; reviewers: code-review git-basics hello
    ann@example.com; ; slack; x; reviewers: code-review git-basics hello
    ann@example.com; ; teams C042; x; reviewers: code-review git-basics
  # who is not named with a profile: bound, then default
    bob@example.com; ; cli; x; restricted: hello
    ; ; cli; x; restricted: hello
    bob@example.com; reviewers; cli; x; reviewers: code-review git-basics
    bob@example.com; gone; cli; x; nothing
    nobody; gone; slack C1; x; nothing
    nobody; ; slack C1; x; restricted: hello release-notes
    bob; all; cli; x; all: code-review git-basics hello release-notes
";

#[test]
fn a_caller_gets_the_skills_of_the_profile_channel_and_rules() {
    let policy = compiled(POLICY);
    let given = |text: &'static str| Some(text).filter(|text| !text.is_empty());
    let rows = GRANTED.lines().map(str::trim);
    let rows: Vec<_> = rows
        .filter(|row| !row.is_empty() && !row.starts_with('#'))
        .collect();
    assert_eq!(rows.len(), 20);
    for row in rows {
        let cells: Vec<&str> = row.split(';').map(str::trim).collect();
        let [callers, bound, at, query, expected] = cells[..] else {
            panic!("{row}")
        };
        let (platform, channel) = at.split_once(' ').unwrap_or((at, ""));
        let callers: Vec<&str> = callers.split_whitespace().collect();
        let at = (platform, given(channel));
        let answer = asked(&policy, &callers, given(bound), at, given(query));
        let found = match &answer.profile {
            Some(profile) => format!("{profile}: {}", names(&answer).join(" ")),
            None => "nothing".to_owned(),
        };
        assert_eq!(found, expected, "{row}");
        assert_eq!(names(&answer).is_empty(), answer.profile.is_none());
    }
}

#[test]
fn who_is_unknown_gets_nothing_and_is_told() {
    let strict = compiled(&POLICY.replace("default_profile = \"restricted\"", ""));
    let absent = CompiledPolicy::absent();
    for (policy, bound, reason) in [
        (
            &strict,
            None,
            "`bob` is an unknown caller, and there is no default profile",
        ),
        (
            &strict,
            Some("gone"),
            "`bob` is not named; the user is bound to the profile `gone`, which the policy does not have",
        ),
        (
            &absent,
            Some("gone"),
            "there is no policy, so nothing is granted",
        ),
    ] {
        let answer = asked(policy, &["bob"], bound, ("cli", None), Some("review"));
        assert_eq!(answer.reasons[0], reason);
        assert_eq!((&answer.caller[..], &answer.profile), ("bob", &None));
        assert!(
            answer.skills.is_empty()
                && answer.tools.is_empty()
                && answer.mcp_servers.is_empty()
                && answer.matched_groups.is_empty()
        );
    }
    let named = asked(&strict, &["nobody"], None, ("slack", Some("C1")), Some("x"));
    assert_eq!(
        named.reasons,
        [
            "`nobody` is named without a profile, and there is no default profile",
            "without a profile nothing is granted"
        ]
    );
    assert!(
        named.skills.is_empty(),
        "added groups need a profile to be added to"
    );
    let long = asked(
        &compiled(POLICY),
        &["ann@example.com"],
        None,
        ("cli", None),
        Some(&"x".repeat(MAX_QUERY_BYTES + 1)),
    );
    assert!(
        long.skills.is_empty()
            && long.tools.is_empty()
            && long.reasons[0].starts_with("the query is over 2048 bytes")
    );
}

#[test]
fn the_answer_has_exactly_its_members() {
    let policy = compiled(POLICY);
    let answer = asked(
        &policy,
        &["ann@example.com"],
        None,
        ("cli", None),
        Some("review the pull requests"),
    );
    let text = serde_json::to_string_pretty(&answer).unwrap();
    let score = answer.skills[0].score.to_string();
    assert_eq!(
        text.replace(&score, "SCORE")
            .replace(&answer.cache_key.to_string(), "KEY"),
        r#"{
  "caller": "ann@example.com",
  "platform": "cli",
  "channel": null,
  "profile": "reviewers",
  "skills": [
    {
      "name": "code-review",
      "score": SCORE,
      "groups": [
        "review"
      ]
    },
    {
      "name": "git-basics",
      "score": 0.0,
      "groups": [
        "review"
      ]
    }
  ],
  "tools": [
    "Bash",
    "Read",
    "github.*"
  ],
  "mcp_servers": [
    "github"
  ],
  "matched_groups": [
    "review"
  ],
  "reasons": [
    "`ann@example.com` is named with the profile `reviewers`",
    "granted: `review`",
    "tools for everybody are added",
    "tools disabled for everybody are removed"
  ],
  "cache_key": "KEY"
}"#
    );
}

#[test]
fn a_query_names_groups_by_whole_words() {
    let policy = compiled(POLICY);
    let matched = |query: &str| {
        asked(
            &policy,
            &["ann@example.com"],
            None,
            ("cli", None),
            Some(query),
        )
        .matched_groups
    };
    for (query, groups) in [
        ("this PR please", &["review"][..]),
        ("deprecated", &[]),
        ("some pull of requests", &[]),
        ("Pull-Requests!", &["review"]),
        ("ops", &[]),
        ("ops, release", &["ops"]),
        ("branch", &["review"]),
        ("public", &[]),
        ("", &[]),
    ] {
        assert_eq!(matched(query), groups, "{query}");
    }
}

#[test]
fn tools_lose_what_is_disabled() {
    let policy = |groups: &str, disabled: &str| {
        compiled(&format!(
            "default_profile = \"p\"\n[profiles.p]\ngroups = [\"g\"]\n[groups.g]\ntools = [{groups}]\n[always]\ntools = [\"Read\"]\ndisabled_tools = [{disabled}]\n"
        ))
    };
    for (groups, disabled, tools, yes, no) in [
        (
            "\"WebFetch\", \"Bash\"",
            "\"Web*\"",
            &["Bash", "Read"][..],
            &["Bash", "Read"][..],
            &["WebFetch", "Edit"][..],
        ),
        ("\"WebF*\"", "\"Web*\"", &["Read"], &["Read"], &["WebFetch"]),
        (
            "\"*\"",
            "\"Web*\", \"Read\"",
            &["*", "!Read", "!Web*"],
            &["Bash"],
            &["WebFetch", "Read"],
        ),
        ("\"*\"", "\"*\"", &[], &[], &["Bash", "Read"]),
        (
            "\"git*\"",
            "\"Web*\"",
            &["Read", "git*"],
            &["git.log"],
            &["Web"],
        ),
    ] {
        let policy = policy(groups, disabled);
        let grant = policy.grant_for(&Asker::default(), Reach::List);
        assert_eq!(grant.tools(), tools);
        assert!(
            yes.iter().all(|tool| grant.allows_tool(tool)),
            "{groups} {disabled}"
        );
        assert!(
            !no.iter().any(|tool| grant.allows_tool(tool)),
            "{groups} {disabled}"
        );
    }
    let nobody =
        compiled("[always]\ntools = [\"Read\"]\n").grant_for(&Asker::default(), Reach::Fetch);
    assert!(
        !nobody.allows_tool("Read") && nobody.tools().is_empty(),
        "for every caller that is known, and none other"
    );
}

#[test]
fn a_fetch_reaches_what_some_query_reaches() {
    let policy = compiled(POLICY);
    let allowed = |platform: &str, reach| {
        let asker = Asker {
            callers: &["ann@example.com"],
            platform,
            ..Asker::default()
        };
        let grant = policy.grant_for(&asker, reach);
        SKILLS
            .iter()
            .filter(|(name, _, tags)| grant.allows(&name.parse::<SkillName>().unwrap(), tags))
            .map(|(name, _, _)| *name)
            .collect::<Vec<_>>()
    };
    assert_eq!(allowed("cli", Reach::List), ["code-review", "git-basics"]);
    assert_eq!(allowed("cli", Reach::Query("secret")), Vec::<&str>::new());
    assert_eq!(
        allowed("cli", Reach::Fetch),
        ["code-review", "git-basics", "release-notes"]
    );
    assert_eq!(allowed("mcp", Reach::Fetch), ["code-review", "git-basics"]);
}

#[test]
fn an_owner_sees_everything_and_a_view_is_shared_by_those_who_see_the_same() {
    let policy = compiled(POLICY);
    let view = |caller: &str| {
        policy
            .grant_for(
                &Asker {
                    callers: &[caller],
                    platform: "cli",
                    ..Asker::default()
                },
                Reach::List,
            )
            .view()
    };
    assert_eq!(view("bob"), view("eve"));
    assert_ne!(view("bob"), view("ann@example.com"));
    let everything = Grant::everything();
    assert!(
        everything.allows::<&str>(&"hidden".parse().unwrap(), &[]) && everything.allows_tool("x")
    );
    assert_ne!(everything.view(), view("bob"));
    assert_ne!(
        everything.view(),
        CompiledPolicy::absent()
            .grant_for(&Asker::default(), Reach::List)
            .view()
    );
}

use super::*;
use proptest::prelude::*;
use vault_format::text::Position;

const BASE: &str = r#"
[profiles.p]
groups = ["g", "*"]
[groups.g]
skills = ["*", "tag:x", "code-review"]
"#;

#[test]
fn faults_have_line_and_column() {
    let cases = [
        (
            "default_profile = \"q\"",
            "policy_unknown_name",
            "1:19: there is no profile `q` (defined: `p`)",
        ),
        (
            "[groups.h]\nmcp_servers = [\"m\"]",
            "policy_unknown_name",
            "2:16: there is no MCP server `m` (none is defined)",
        ),
        (
            "[callers.c]\nprofile = \"q\"",
            "policy_unknown_name",
            "2:11: there is no profile `q` (defined: `p`)",
        ),
        (
            "[callers.\"c d\"]\nchannels = [{ platform = \"x\", channel = \"*\", remove_groups = [\"g\", \"h\"] }]",
            "policy_unknown_name",
            "2:68: there is no group `h` (defined: `g`)",
        ),
        (
            "[[rules]]\nwhen = \"a\"\nadd_groups = [\"*\"]",
            "policy_unknown_name",
            "3:15: there is no group `*` (defined: `g`)",
        ),
        (
            "[[rules]]\nwhen = \"a\"\nprofiles = [\"p\", \"q\"]",
            "policy_unknown_name",
            "3:18: there is no profile `q` (defined: `p`)",
        ),
        ("[[rules]]\nwhen = \"(?=a)\"", "policy_regex", "2:8: "),
        ("[[rules]]\nwhen = \"(a\\\\1)\"", "policy_regex", "2:8: "),
        (
            "[[rules]]\nwhen = \"((a{999}){999}){999}\"",
            "policy_regex",
            "2:8: ",
        ),
        (
            "[[rules]]\nplatforms = []",
            "policy_schema",
            "1:1: missing field `when`",
        ),
        (
            "[mcp_servers.m]\nurl = \"ftp://x\"",
            "policy_schema",
            "2:7: `ftp://x` is not the address of an MCP server",
        ),
        (
            "[groups.h]\nskills = [\"tag:\"]",
            "policy_schema",
            "2:11: `tag:` is neither the name of a skill nor `tag:<tag>` nor `*`",
        ),
        (
            "[groups.h]\nskills = [\"Code Review\"]",
            "policy_schema",
            "2:11: ",
        ),
        (
            "[groups.h]\nskill = []",
            "policy_schema",
            "2:1: unknown key `skill`",
        ),
        (
            "[sources]\nsigners = [\"short\"]",
            "policy_schema",
            "2:12: ",
        ),
        (
            "[sources]\nminimum_age_days = -1",
            "policy_schema",
            "2:20: ",
        ),
        ("[groups]\ng = [[\"*\"]]", "policy_schema", "2:5: "),
        ("default_profile = ", "policy_schema", "1:19: "),
    ];
    for (text, word, message) in cases {
        let whole = if text.contains("[groups]") {
            text.to_owned()
        } else {
            format!("{text}\n{BASE}")
        };
        let error = Policy::from_toml(&whole).expect_err(text);
        assert_eq!(error.word(), word, "{text}: {error}");
        assert!(error.to_string().starts_with(message), "{text}: {error}");
    }
}

#[test]
fn sizes_are_bounded() {
    let many = "[[rules]]\nwhen = \"a\"\n".repeat(MAX_RULES + 1);
    assert_eq!(
        Policy::from_toml(&many).unwrap_err().word(),
        "policy_schema"
    );
    // Each expression may be this large, but not all of them together.
    let large = "[[rules]]\nwhen = \"(a?){900}b\"\n".repeat(100);
    let error = Policy::from_toml(&large).unwrap_err();
    assert_eq!(
        (error.word(), error.position()),
        ("policy_regex", Some(Position::new(1, 1)))
    );
    assert_eq!(
        Policy::from_toml(&"#".repeat(MAX_BYTES + 1))
            .unwrap_err()
            .word(),
        "policy_schema"
    );
}

#[test]
fn empty_members_stay_and_absent_ones_stay_absent() {
    for (text, object) in [
        ("", r#"{"schema":"vault.policy/1"}"#),
        (
            "[profiles]\n[groups.g]\n[always]\ntools = []\n",
            r#"{"schema":"vault.policy/1","profiles":{},"groups":{"g":{}},"always":{"tools":[]}}"#,
        ),
        (
            "rules = []\n[sources]\nsigned_only = false\n",
            r#"{"schema":"vault.policy/1","rules":[],"sources":{"signed_only":false}}"#,
        ),
    ] {
        let policy = Policy::from_toml(text).unwrap();
        assert_eq!(String::from_utf8(policy.to_object()).unwrap(), object);
        assert_eq!(Policy::from_object(object.as_bytes()).unwrap(), policy);
    }
}

#[test]
fn objects_are_as_strict_as_the_text_but_for_unknown_members() {
    let read = |members: &str| {
        Policy::from_object(format!("{{\"schema\":\"vault.policy/1\"{members}}}").as_bytes())
    };
    assert!(read(",\"later\":{\"a\":[1]}").is_ok());
    for (members, word) in [
        (",\"groups\":null", "policy_schema"),
        (",\"groups\":{\"a\":[[]]}", "policy_schema"),
        (",\"groups\":{\"a\":{},\"a\":{}}", "policy_schema"),
        (",\"rules\":[[\"a\"]]", "policy_schema"),
        (",\"always\":[]", "policy_schema"),
        (",\"default_profile\":null", "policy_schema"),
        (",\"default_profile\":\"x\"", "policy_unknown_name"),
        (",\"rules\":[{\"when\":\"(\"}]", "policy_regex"),
    ] {
        assert_eq!(read(members).expect_err(members).word(), word, "{members}");
    }
}

#[test]
fn expressions_match_as_written() {
    let rule = Rule {
        when: "(?i)deploy|release".to_owned(),
        platforms: None,
        profiles: None,
        add_groups: None,
        remove_groups: None,
    };
    assert!(
        rule.compile_expression()
            .unwrap()
            .is_match("please DEPLOY it")
    );
}

fn words() -> impl Strategy<Value = Option<Vec<String>>> {
    proptest::option::of(proptest::collection::vec("[a-z*.\"\\\\é ]{0,6}", 0..3))
}

proptest! {
    #[test]
    fn a_policy_survives_as_text_and_as_object(
        groups in proptest::collection::btree_map("[a-zé. \"]{0,6}", (words(), words()), 0..4),
        callers in proptest::collection::btree_map("[a-z@. ]{0,9}", "[a-z]{0,3}", 0..3),
        tools in words(),
    ) {
        let profiles: Table<Profile> = callers.values().map(|name| (name.clone(), Profile { groups: Some(groups.keys().cloned().collect()) })).collect();
        let policy = Policy {
            default_profile: profiles.keys().next().cloned(),
            profiles: Some(profiles),
            groups: Some(groups.into_iter().map(|(name, (tools, aliases))| (name, Group { tools, aliases, ..Group::default() })).collect()),
            callers: Some(callers.into_iter().map(|(id, profile)| (id, Caller { profile: Some(profile), channels: None })).collect()),
            always: Some(Always { tools, disabled_tools: None }),
            ..Policy::default()
        };
        prop_assert_eq!(&Policy::from_object(&policy.to_object()).unwrap(), &policy);
        prop_assert_eq!(&Policy::from_toml(&toml::to_string(&policy).unwrap()).unwrap(), &policy);
    }

    #[test]
    fn no_text_panics(bytes: Vec<u8>, text in "(\\[groups\\.a\\]|\\[\\[rules\\]\\]|when|profiles|default_profile|tools| = |\"a\"|\\[|\\]|\\{|\\}|\n|,|1){0,30}") {
        prop_assert!(Policy::from_object(&bytes).is_err());
        let _ = Policy::from_toml(&text);
    }
}

use super::*;
use proptest::prelude::*;
use vault_format::name::ActionName;

fn words(text: &str) -> Vec<(&'static str, u32, u32)> {
    let findings = match Document::parse(text.as_bytes()) {
        Ok(document) => document.findings().to_vec(),
        Err(error) => error.into_findings(),
    };
    findings
        .iter()
        .map(|finding| {
            (
                finding.rule,
                finding.line.unwrap_or(0),
                finding.column.unwrap_or(0),
            )
        })
        .collect()
}

fn with(fields: &str) -> String {
    format!("---\nname: a\ndescription: Does something.\n{fields}\n---\nText.\n")
}

fn read(fields: &str) -> Frontmatter {
    Document::parse(with(fields).as_bytes())
        .unwrap()
        .frontmatter
}

#[test]
fn bytes_and_body_are_kept() {
    for text in [
        "---\nname: a\ndescription: b\n---\nBody \t\n\n",
        "---\r\nname: a\r\ndescription: b\r\n---\r\nBody\r\n",
        "\u{FEFF}---\nname: a\ndescription: b\n---\nBody",
        "--- \t\nname: a\ndescription: b\n---  \nBody",
        "---\nname: a\ndescription: b\n---",
    ] {
        let document = Document::parse(text.as_bytes()).unwrap();
        assert_eq!(document.bytes(), text.as_bytes());
        assert!(text.ends_with(document.body()), "{text:?}");
        assert!(!document.body().contains("---"), "{text:?}");
        assert_eq!(document.frontmatter().name, "a");
        assert_eq!(document.frontmatter().description, "b");
        assert!(document.findings().is_empty());
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let big_yaml = format!(
        "---\nname: a\ndescription: b\nx: {}\n---\n",
        "y".repeat(MAX_FRONTMATTER_BYTES)
    );
    let cases: &[(&str, &str, u32, u32)] = &[
        ("", "frontmatter-missing", 1, 1),
        ("# Title\n", "frontmatter-missing", 1, 1),
        ("\n\n---\nname: a\n---\n", "frontmatter-missing", 3, 1),
        ("---\nname: a\n", "frontmatter-unclosed", 1, 1),
        ("---\nname: a\n----\n", "frontmatter-unclosed", 1, 1),
        (
            "---\nname: a\ndescription: b\u{0}\n---\n",
            "skill-md-encoding",
            3,
            15,
        ),
        (
            "---\nname: a\ndescription: \"b\\0\"\n---\n",
            "skill-md-encoding",
            3,
            14,
        ),
        ("---\n- a\n---\n", "frontmatter-yaml", 2, 1),
        ("---\njust text\n---\n", "frontmatter-yaml", 2, 1),
        ("---\nname: a\nname: b\n---\n", "frontmatter-yaml", 3, 1),
        (
            "---\nname: a\ndescription: [b\n---\n",
            "frontmatter-yaml",
            3,
            14,
        ),
        (
            "---\nname: a\ndescription: Use when: it rains # always\n---\n",
            "frontmatter-colon",
            3,
            22,
        ),
        (
            "---\nname: a\ndescription: Use\n  when: it rains\n---\n",
            "frontmatter-colon",
            4,
            7,
        ),
        (&big_yaml, "frontmatter-size", 2, 1),
    ];
    for (text, rule, line, column) in cases {
        let error = Document::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.error_class(), "skill_frontmatter", "{error}");
        let finding = &error.findings()[0];
        assert_eq!(
            (finding.rule, finding.position()),
            (*rule, Some(Position::new(*line, *column))),
            "{error}"
        );
        assert!(!finding.hint.is_empty());
    }
    let error = Document::parse(b"---\nname: \xff\n---\n").unwrap_err();
    assert_eq!(error.findings()[0].position(), Some(Position::new(2, 7)));
    assert_eq!(
        Document::parse(&vec![b'x'; 256 * 1024 + 1])
            .unwrap_err()
            .findings()[0]
            .rule,
        "skill-md-size"
    );
}

#[test]
fn a_plain_value_of_one_line_with_a_colon_is_read_with_a_warning() {
    let text = "---\nname: a\ndescription: Use when: it's raining: now\nlicense: MIT: or so\ntags: [x]\n---\nBody: text\n";
    let document = Document::parse(text.as_bytes()).unwrap();
    let frontmatter = document.frontmatter();
    assert_eq!(frontmatter.description, "Use when: it's raining: now");
    assert_eq!(frontmatter.license.as_deref(), Some("MIT: or so"));
    assert_eq!(frontmatter.tags, ["x"]);
    assert_eq!(document.bytes(), text.as_bytes(), "the bytes stay");
    assert_eq!(document.body(), "Body: text\n");
    let found: Vec<_> = document
        .findings()
        .iter()
        .filter(|finding| finding.rule == "frontmatter-colon")
        .map(|finding| (finding.level, finding.position()))
        .collect();
    assert_eq!(
        found,
        [
            (Level::Warning, Some(Position::new(3, 22))),
            (Level::Warning, Some(Position::new(4, 13)))
        ]
    );
    let json = frontmatter_json(text.as_bytes()).unwrap();
    assert_eq!(json["description"], "Use when: it's raining: now");
}

#[test]
fn several_groups_in_brackets_are_read_with_a_warning() {
    let read = |hint: &str| {
        let text = format!("---\nname: a\ndescription: b\nargument-hint: {hint}\ntags: [x]\n---\n");
        let document = Document::parse(text.as_bytes());
        document.map(|document| {
            let found = document.findings().iter();
            let found = found.filter(|finding| finding.rule == "frontmatter-colon");
            found
                .map(crate::finding::Finding::position)
                .collect::<Vec<_>>()
        })
    };
    let at = vec![Some(Position::new(4, 16))];
    for hint in ["[voice] [message]", "[a] [b] [c]", "[a][b]", "[it's a] [b]"] {
        let found = read(hint);
        match hint {
            "[it's a] [b]" => assert!(found.is_err(), "{hint}"),
            _ => assert_eq!(found.unwrap(), at, "{hint}"),
        }
    }
    for hint in ["[a, [b] [c]", "[a] b", "[\"a\"] [b]", "[a] {b}"] {
        assert!(read(hint).is_err(), "{hint}");
    }
    assert!(read("[a, b]").unwrap().is_empty());
}

#[test]
fn the_unquoted_colon_is_explained() {
    let text = "---\nname: a\ndescription: Use\n  when: it rains\n---\n";
    let error = Document::parse(text.as_bytes()).unwrap_err();
    assert_eq!(
        error.findings()[0].message,
        "the value of `description` holds `: ` without quotes, which YAML reads as another key"
    );
    assert_eq!(
        error.findings()[0].hint,
        "put the whole value of `description` in double quotes, or write it below `description: >-`, indented"
    );
}

#[test]
fn name_and_description_must_be_there() {
    let long_name = "n".repeat(MAX_NAME_CHARS + 1);
    let long = "d".repeat(MAX_DESCRIPTION_CHARS + 1);
    let cases: &[(String, &str, &str, u32)] = &[
        ("description: b".to_owned(), "skill_name", "name-missing", 1),
        (
            "name:\ndescription: b".to_owned(),
            "skill_name",
            "name-missing",
            2,
        ),
        (
            "name: ' '\ndescription: b".to_owned(),
            "skill_name",
            "name-missing",
            2,
        ),
        (
            "name: 12\ndescription: b".to_owned(),
            "skill_name",
            "name-missing",
            2,
        ),
        (
            "name: [a]\ndescription: b".to_owned(),
            "skill_name",
            "name-missing",
            2,
        ),
        (
            format!("name: {long_name}\ndescription: b"),
            "skill_name",
            "name-length",
            2,
        ),
        (
            "name: |\n  a\ndescription: b".to_owned(),
            "skill_name",
            "name-hidden",
            3,
        ),
        (
            "name: \"a\\u200bb\"\ndescription: b".to_owned(),
            "skill_name",
            "name-hidden",
            2,
        ),
        (
            "name: a".to_owned(),
            "skill_description",
            "description-missing",
            1,
        ),
        (
            "name: a\ndescription: ''".to_owned(),
            "skill_description",
            "description-missing",
            3,
        ),
        (
            "name: a\ndescription: true".to_owned(),
            "skill_description",
            "description-missing",
            3,
        ),
        (
            format!("name: a\ndescription: {long}"),
            "skill_description",
            "description-length",
            3,
        ),
    ];
    for (fields, word, rule, line) in cases {
        let error = Document::parse(format!("---\n{fields}\n---\n").as_bytes()).unwrap_err();
        assert_eq!(
            (error.error_class(), error.findings()[0].rule),
            (*word, *rule),
            "{fields}"
        );
        assert_eq!(error.findings()[0].line, Some(*line), "{fields}");
        assert_eq!(error.findings().len(), 1);
    }
    let both = Document::parse(b"---\n---\n").unwrap_err();
    assert_eq!(both.error_class(), "skill_name");
    assert_eq!(both.findings().len(), 2, "every fault is named at once");
    let longest = "d".repeat(MAX_DESCRIPTION_CHARS);
    assert!(
        Document::parse(format!("---\nname: a\ndescription: {longest}\n---\n").as_bytes()).is_ok()
    );
}

#[test]
fn a_wrong_type_is_a_warning_and_counts_as_absent() {
    let cases: &[(&str, &str, u32)] = &[
        ("license: [MIT]", "license", 10),
        ("compatibility: 3", "compatibility", 16),
        ("allowed-tools: {a: b}", "allowed-tools", 16),
        ("metadata: text", "metadata", 11),
        ("tags: {a: b}", "tags", 7),
        ("tags: [a, 1]", "tags", 11),
        ("category: true", "category", 11),
        ("when_to_use: [x]", "when_to_use", 14),
        ("agents: [Not An Id]", "agents", 9),
        ("agents: [{name: x}]", "agents", 10),
        ("requires-secrets: 1TOKEN", "requires-secrets", 19),
        ("requires-secrets: [{name: 1TOKEN}]", "requires-secrets", 27),
        ("requires-secrets: [TOKEN=1]", "requires-secrets", 20),
        ("capabilities: network", "capabilities", 15),
        ("capabilities: {network: maybe}", "capabilities", 25),
    ];
    for (field, key, column) in cases {
        let document = Document::parse(with(field).as_bytes()).unwrap();
        let finding = &document.findings()[0];
        assert_eq!(
            (finding.rule, finding.level),
            ("frontmatter-type", Level::Warning),
            "{field}"
        );
        assert_eq!(
            finding.position(),
            Some(Position::new(4, *column)),
            "{field}: {finding}"
        );
        assert!(
            finding.message.starts_with(&format!("`{key}` must be ")),
            "{finding}"
        );
        assert_eq!(document.frontmatter, read(""), "{field}");
    }
}

#[test]
fn lists_texts_and_spellings() {
    let fields = read(
        "allowed-tools: Bash(git add:*), Read  Edit\ntags: [b, ' a ', b, '']\ncategories: x, y\ncompatibility: [git, sh]\nwhen-to-use: now",
    );
    assert_eq!(fields.allowed_tools, ["Bash(git add:*)", "Read", "Edit"]);
    assert_eq!(fields.tags, ["b", "a"]);
    assert_eq!(fields.categories, ["x", "y"]);
    assert_eq!(fields.compatibility.as_deref(), Some("git, sh"));
    assert_eq!(fields.when_to_use.as_deref(), Some("now"));
    assert_eq!(
        read("allowed_tools: [Bash, 'Read(x, y)']").allowed_tools,
        ["Bash", "Read(x, y)"]
    );
    assert_eq!(
        words(&with("when_to_use: a\nwhen-to-use: b")),
        [("frontmatter-spelling", 5, 1)]
    );
    assert_eq!(
        read("when_to_use: a\nwhen-to-use: b")
            .when_to_use
            .as_deref(),
        Some("a")
    );
}

#[test]
fn top_level_wins_over_metadata_when_it_fits() {
    assert_eq!(read("tags: [a]\nmetadata: {tags: [b]}").tags, ["a"]);
    assert_eq!(read("tags:\nmetadata: {tags: [b]}").tags, ["b"]);
    assert_eq!(
        read("tags: 1\nmetadata: {tags: [b]}").tags,
        ["b"],
        "a wrong type counts as absent"
    );
    assert_eq!(
        read("metadata: {license: MIT}").license,
        None,
        "the standard's own keys stand at top level"
    );
    assert!(
        read("metadata: {bin: {log: {command: git}}}")
            .actions
            .contains_key("log")
    );
    let both = read("bin: {a: {command: git}}\nmetadata: {bin: {b: {command: git}}}");
    assert_eq!(
        both.actions
            .keys()
            .map(ActionName::as_str)
            .collect::<Vec<_>>(),
        ["a"]
    );
}

#[test]
fn unknown_keys_pass_through() {
    assert!(
        words(&with(
            "x-other: {deep: [1, {y: z}]}\nversion: 1.0\n2: two\nfloat: .inf"
        ))
        .is_empty()
    );
}

#[test]
fn actions_are_read_with_their_defaults() {
    let fields = read(
        "bin:\n  check: { command: bin/check.sh }\n  log: { command: git, args: [log], cwd: docs, description: Shows., requires_tty: true, other: 1 }",
    );
    let log = &fields.actions["log"];
    assert_eq!(
        (log.command.as_str(), log.cwd.as_str(), log.requires_tty),
        ("git", "docs", true)
    );
    assert_eq!(
        (log.args.as_slice(), log.description.as_deref()),
        (["log".to_owned()].as_slice(), Some("Shows."))
    );
    assert_eq!(log.at, Position::new(6, 3));
    let check = &fields.actions["check"];
    assert_eq!(
        (check.args.len(), check.cwd.as_str(), check.requires_tty),
        (0, ".", false)
    );
}

#[test]
fn a_wrong_action_refuses_the_skill() {
    let many = format!(
        "bin: {{a: {{command: x, args: [{}]}}}}",
        "y,".repeat(MAX_ARGS + 1)
    );
    let cases: &[(&str, u32, u32)] = &[
        ("bin: [check]", 4, 6),
        ("bin: check", 4, 6),
        ("bin: {check: bin/check.sh}", 4, 14),
        ("bin: {check: {args: []}}", 4, 7),
        ("bin: {check: {command: 1}}", 4, 24),
        ("bin: {check: {command: ''}}", 4, 24),
        ("bin: {check: {command: [sh]}}", 4, 24),
        ("bin: {check: {command: \"a\\nb\"}}", 4, 24),
        ("bin: {check: {command: x, args: all}}", 4, 33),
        ("bin: {check: {command: x, args: [1]}}", 4, 34),
        ("bin: {check: {command: x, args: [\"\\u001b\"]}}", 4, 33),
        ("bin: {check: {command: x, cwd: 1}}", 4, 32),
        ("bin: {check: {command: x, description: [y]}}", 4, 40),
        (
            "bin: {check: {command: x, description: \"\\u202e\"}}",
            4,
            40,
        ),
        ("bin: {check: {command: x, requires-tty: 1}}", 4, 41),
        ("bin: {check: {command: x, requires_tty: sure}}", 4, 41),
        ("bin: {list: {command: x}}", 4, 7),
        ("bin: {search: {command: x}}", 4, 7),
        ("bin: {which: {command: x}}", 4, 7),
        ("bin: {Check: {command: x}}", 4, 7),
        ("bin: {1check: {command: x}}", 4, 7),
        ("metadata: {bin: nothing}", 4, 17),
        (&many, 4, 29),
    ];
    for (field, line, column) in cases {
        let error = Document::parse(with(field).as_bytes()).expect_err(field);
        assert_eq!(error.error_class(), "skill_bin", "{field}: {error}");
        assert_eq!(
            error.findings()[0].position(),
            Some(Position::new(*line, *column)),
            "{field}: {error}"
        );
    }
    let two =
        Document::parse(with("bin: {list: {command: x}, a: {command: 1}}").as_bytes()).unwrap_err();
    assert_eq!(two.findings().len(), 2, "every fault is named at once");
}

#[test]
fn secrets_and_capabilities() {
    let fields = read(
        "requires-secrets: [{name: A_B}, {name: C, description: Why., required: false}]\ncapabilities: {network: true, tools: Bash Read}",
    );
    assert_eq!(
        fields.requires_secrets[0],
        Secret {
            name: "A_B".to_owned(),
            description: None,
            required: true
        }
    );
    assert_eq!(
        fields.requires_secrets[1].description.as_deref(),
        Some("Why.")
    );
    assert!(!fields.requires_secrets[1].required);
    // A name by itself also declares the variable.
    let names = read("requires-secrets: [A_B, {name: C}]").requires_secrets;
    assert_eq!(names[0], fields.requires_secrets[0]);
    assert_eq!(names[1].name, "C");
    let capabilities = fields.capabilities.unwrap();
    assert_eq!(
        (capabilities.network, capabilities.filesystem),
        (Some(true), None)
    );
    assert_eq!(capabilities.tools, ["Bash", "Read"]);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = Document::parse(&bytes);
    }

    #[test]
    fn no_frontmatter_panics_and_the_bytes_stay(yaml in "(name|description|tags|bin|metadata|agents|[a-z]{1,3}|: |:|\n|\n  |- |\\[|\\]|\\{|\\}|,|\"|'|#|&a|\\*a|<<|\\||>|1|true|~|\u{202e}){0,40}", body in ".{0,20}") {
        let text = format!("---\nname: a\ndescription: b\n{yaml}\n---\n{body}");
        if let Ok(document) = Document::parse(text.as_bytes()) {
            prop_assert_eq!(document.bytes(), text.as_bytes());
            prop_assert!(text.ends_with(document.body()));
        }
    }

    #[test]
    fn quoted_texts_come_back(name in plain(60), description in plain(200), tags in proptest::collection::vec(plain(10), 0..4)) {
        let json = |text: &String| serde_json::to_string(text).unwrap();
        let list = serde_json::to_string(&tags).unwrap();
        let text = format!("---\nname: {}\ndescription: {}\ntags: {list}\n---\n", json(&name), json(&description));
        let document = Document::parse(text.as_bytes());
        prop_assert!(document.is_ok(), "{}", document.unwrap_err());
        let fields = document.unwrap().frontmatter;
        prop_assert_eq!((&fields.name, &fields.description), (&name, &description));
        let mut wanted: Vec<String> = Vec::new();
        for tag in tags.iter().map(|tag| tag.trim().to_owned()) {
            if !wanted.contains(&tag) {
                wanted.push(tag);
            }
        }
        prop_assert_eq!(fields.tags, wanted);
    }
}

/// Texts that are written the same in JSON and in YAML: no controls, and none of the characters
/// that YAML escapes.
fn plain(most: usize) -> impl Strategy<Value = String> {
    let pattern = format!("[^\\p{{C}}\\p{{Zl}}\\p{{Zp}}]{{1,{most}}}");
    proptest::string::string_regex(&pattern)
        .unwrap()
        .prop_filter("empty", |text| !text.trim().is_empty())
}

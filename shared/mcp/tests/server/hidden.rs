//! What a member may not see makes no difference: every answer, and the work behind it, is what it
//! would be if it were not there.

use proptest::prelude::*;
use serde_json::{Value, json};
use vault_mcp::Person;
use vault_policy::Policy;
use vault_shelf::Writes;

use super::support::{World, member, world};

const SEEN: [&str; 4] = ["alpha", "beta-notes", "gamma", "delta-notes"];
const HIDDEN: [&str; 4] = ["payroll", "beta-secret", "alpha-2", "zeta"];

/// Lists hold `alpha`, `beta-notes` and what is tagged `open`; a rule adds `delta-notes` for
/// queries about deltas, and so for fetches.
const POLICY: &str = r#"
[profiles.reader]
groups = ["open"]
[groups.open]
skills = ["alpha", "beta-notes", "tag:open"]
aliases = ["beta", "open things"]
[groups.deltas]
skills = ["delta-notes"]
[groups.never]
skills = ["payroll", "zeta"]
aliases = ["payroll"]
[callers."ana@example.org"]
profile = "reader"
[[rules]]
when = "delta"
add_groups = ["deltas"]
"#;

fn stocked(with_hidden: bool, policy: bool) -> World {
    let world = world(Writes::Drafted);
    let put = |name: &str, tags: &[&str]| {
        let description = format!(
            "All about {} and secret salary notes",
            name.replace('-', " ")
        );
        let files: [(&str, &[u8]); 2] = [("notes/a.txt", name.as_bytes()), ("b.bin", b"\0\x01")];
        world
            .shelf
            .put_text(name, &description, tags, &files)
            .unwrap();
    };
    for name in SEEN {
        put(
            name,
            if name == "gamma" {
                &["Open"]
            } else {
                &["other"]
            },
        );
    }
    if with_hidden {
        for name in HIDDEN {
            put(name, &["other"]);
        }
    }
    if policy {
        world
            .shelf
            .set_policy(Some(Policy::from_toml(POLICY).unwrap()));
    }
    world
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(&SEEN[..]).prop_map(str::to_owned),
        8 => prop::sample::select(&HIDDEN[..]).prop_map(str::to_owned),
        1 => Just("nobody".to_owned()),
        1 => "[a-z./-]{0,12}",
    ]
}

fn id() -> impl Strategy<Value = String> {
    (prop_oneof![Just(""), Just("acme/"), Just("other/")], name())
        .prop_map(|(owner, name)| format!("{owner}{name}"))
}

fn query() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            name(),
            prop::sample::select(&["notes", "secret", "payroll", "delta", "all", "about"][..])
                .prop_map(str::to_owned),
        ],
        0..4,
    )
    .prop_map(|words| words.join(" "))
}

fn uri() -> impl Strategy<Value = String> {
    let path = prop::sample::select(
        &[
            "",
            "/",
            "/SKILL.md",
            "/notes",
            "/notes/a.txt",
            "/b.bin",
            "/.vault",
            "/.vault/manifest.json",
            "/none",
        ][..],
    );
    prop_oneof![
        9 => (name(), path).prop_map(|(name, path)| format!("skill://acme/{name}{path}")),
        1 => Just("skill://acme".to_owned()),
    ]
}

fn optional(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop::option::of(value)
}

/// An object of those members that have a value.
fn object(members: Vec<(&'static str, Option<Value>)>) -> Value {
    members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn document(name: &str) -> Value {
    format!("---\nname: {name}\ndescription: Something that somebody else would write\n---\nbody")
        .into()
}

fn tool_call() -> impl Strategy<Value = Value> {
    let text = || id().prop_map(Value::from);
    prop_oneof![
        (
            optional(text()),
            optional(query().prop_map(Value::from)),
            optional((0_u32..22).prop_map(Value::from)),
            optional(any::<bool>().prop_map(Value::from))
        )
            .prop_map(|(name, query, top_k, include)| (
                "get_skill",
                object(vec![
                    ("name", name),
                    ("query", query),
                    ("top_k", top_k),
                    ("include_resources", include)
                ])
            )),
        text().prop_map(|name| (
            "get_skill",
            json!({ "name": name, "include_resources": true })
        )),
        query().prop_map(|query| ("get_skill", json!({ "query": query, "top_k": 20 }))),
        (
            optional(cursor()),
            optional(prop_oneof![Just(json!("other")), Just(json!("open"))])
        )
            .prop_map(|(cursor, tag)| (
                "skill.list",
                object(vec![("cursor", cursor), ("tag", tag)])
            )),
        text().prop_map(|id| ("skill_fetch", json!({ "id": id }))),
        optional(text()).prop_map(|skill| ("check_updates", object(vec![("skill", skill)]))),
        (
            optional(query().prop_map(Value::from)),
            optional(prop_oneof![Just(json!("ana@example.org")), text()])
        )
            .prop_map(|(query, caller)| (
                "resolve_capabilities",
                object(vec![("query", query), ("caller", caller)])
            )),
        text().prop_map(|name| ("update_skill", json!({ "name": name }))),
        text().prop_map(|name| ("remove_skill", json!({ "name": name }))),
        (name(), any::<bool>()).prop_map(|(name, check)| (
            "propose_skill",
            json!({ "skill_md": document(&name), "check": check })
        )),
        name().prop_map(|name| ("skill_publish", json!({ "skill_md": document(&name) }))),
        name().prop_map(|name| (
            "add_skill",
            json!({ "source": "git", "identifier": format!("github:acme/{name}"), "skill": name })
        )),
        (
            prop::sample::select(&["get_skill", "skill_list", "skill_fetch", "check_updates"][..]),
            text()
        )
            .prop_map(|(tool, name)| (tool, json!({ "skill": name.clone(), "what": name }))),
    ]
    .prop_map(|(tool, arguments)| json!({ "name": tool, "arguments": arguments }))
}

/// Cursors as lists write them, behind skills that exist and others.
fn cursor() -> impl Strategy<Value = Value> {
    name().prop_map(|name| Value::from(format!("after:{name}")))
}

fn request() -> impl Strategy<Value = (&'static str, Value)> {
    let cursor = || optional(cursor()).prop_map(|cursor| object(vec![("cursor", cursor)]));
    prop_oneof![
        8 => tool_call().prop_map(|params| ("tools/call", params)),
        1 => cursor().prop_map(|params| ("resources/list", params)),
        1 => cursor().prop_map(|params| ("skills/list", params)),
        2 => uri().prop_map(|uri| ("resources/read", json!({ "uri": uri }))),
        2 => uri().prop_map(|uri| ("resources/directory/read", json!({ "uri": uri }))),
        2 => uri().prop_map(|uri| ("skills/get", json!({ "uri": uri }))),
    ]
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

/// Asks both worlds the same and compares the answers and how much content was opened for them.
async fn compare(worlds: &[World; 2], person: &Person, asked: &[(&'static str, Value)]) {
    for (method, params) in asked {
        let before = worlds.each_ref().map(|world| world.shelf.loads());
        let with = worlds[0].ask(person, method, params.clone()).await;
        let without = worlds[1].ask(person, method, params.clone()).await;
        assert_eq!(with.text, without.text, "{method} {params}");
        assert_eq!(
            format!("{:?}", with.denied),
            format!("{:?}", without.denied)
        );
        let after = worlds.each_ref().map(|world| world.shelf.loads());
        assert_eq!(
            after[0] - before[0],
            after[1] - before[1],
            "{method} {params}: other work"
        );
        let given = params.to_string();
        for hidden in HIDDEN {
            assert!(
                given.contains(hidden) || !with.text.contains(hidden),
                "{method} {params} names {hidden}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_depends_on_what_a_member_may_not_see(asked in prop::collection::vec(request(), 1..8)) {
        block_on(compare(&[stocked(true, true), stocked(false, true)], &member("ana@example.org"), &asked));
    }

    #[test]
    fn without_a_policy_or_a_place_in_it_there_is_nothing(asked in prop::collection::vec(request(), 1..4), policy: bool) {
        let stranger = member("eve@example.org");
        let empty = world(Writes::Drafted);
        if policy {
            empty.shelf.set_policy(Some(Policy::from_toml(POLICY).unwrap()));
        }
        block_on(compare(&[stocked(true, policy), empty], &stranger, &asked));
    }
}

#[tokio::test]
async fn a_member_sees_what_the_policy_grants() {
    let world = stocked(true, true);
    let ana = member("ana@example.org");
    let listed = world.call(&ana, "skill_list", json!({})).await;
    assert_eq!(
        listed.names("skills"),
        ["alpha", "beta-notes", "gamma"],
        "rules say nothing of lists"
    );
    let found = world
        .call(&ana, "get_skill", json!({ "query": "notes" }))
        .await;
    assert_eq!(found.names("hits").len(), 3);
    let found = world
        .call(&ana, "get_skill", json!({ "query": "delta notes" }))
        .await;
    assert_eq!(found.names("hits").len(), 4);
    let fetched = world
        .call(&ana, "skill_fetch", json!({ "id": "acme/delta-notes" }))
        .await;
    assert_eq!(
        fetched.structured()["name"],
        "delta-notes",
        "what a rule could grant can be fetched"
    );
    let bound = Person {
        profile: Some("reader".to_owned()),
        ..member("bob@example.org")
    };
    assert_eq!(
        world
            .call(&bound, "skill_list", json!({}))
            .await
            .names("skills")
            .len(),
        3
    );
}

//! The examples of `docs/policy.md`: each question gives exactly the answer that stands below it.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

use serde::Deserialize;
use serde_json::Value;
use vault_format::hash::Digest;
use vault_policy::search::Text;
use vault_policy::{Asker, CompiledPolicy, Input, Policy, resolve_capabilities};

#[derive(Deserialize)]
struct Question {
    caller: String,
    platform: String,
    channel: Option<String>,
    query: String,
    skills: Vec<Skill>,
}

#[derive(Deserialize)]
struct Skill {
    name: String,
    tags: Vec<String>,
    description: String,
}

/// The fenced blocks of a page: what stands behind the fence, and the text.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut open = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(kind) => {
                open = true;
                blocks.push((kind, String::new()));
            }
            None if open => {
                if let Some((_, text)) = blocks.last_mut() {
                    text.push_str(line);
                    text.push('\n');
                }
            }
            None => {}
        }
    }
    blocks
}

fn answered(policy: &CompiledPolicy, question: &Question) -> Value {
    let skills: Vec<Text<'_>> = question
        .skills
        .iter()
        .map(|skill| Text {
            name: &skill.name,
            description: &skill.description,
            tags: &skill.tags,
            categories: &[],
            when_to_use: "",
        })
        .collect();
    let answer = resolve_capabilities(&Input {
        policy,
        catalog: None,
        asker: Asker {
            callers: &[&question.caller],
            bound_profile: None,
            platform: &question.platform,
            channel: question.channel.as_deref(),
        },
        query: Some(&question.query),
        skills: &skills,
    });
    let mut answer = serde_json::to_value(answer).unwrap();
    for skill in answer["skills"].as_array_mut().unwrap() {
        let score = (skill["score"].as_f64().unwrap() * 100.0).round() / 100.0;
        skill["score"] = score.into();
    }
    answer
}

#[test]
fn the_examples_are_answered_as_they_say() {
    let page = include_str!("../../../docs/policy.md");
    let mut policy = CompiledPolicy::absent();
    let (mut question, mut answers, mut wrong) = (None, 0, Vec::new());
    for (kind, text) in blocks(page) {
        match kind {
            "toml" => policy = CompiledPolicy::new(Policy::from_toml(&text).unwrap()).unwrap(),
            "json question" => question = Some(serde_json::from_str::<Question>(&text).unwrap()),
            "json answer" => {
                let asked = question.take().unwrap();
                let answer = answered(&policy, &asked);
                let said: Value = serde_json::from_str(&text).unwrap();
                if said != answer {
                    wrong.push(answer.to_string());
                }
                answers += 1;
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "the answers are\n{}", wrong.join("\n"));
    assert_eq!(answers, 4);
}

#[test]
fn the_cache_key_is_the_hash_of_the_text_that_the_page_shows() {
    let page = include_str!("../../../docs/policy.md");
    let line = page
        .lines()
        .find_map(|line| {
            line.strip_prefix('`')?
                .strip_suffix('`')
                .filter(|line| line.starts_with('{'))
        })
        .unwrap();
    let policy = CompiledPolicy::new(Policy::default()).unwrap();
    let catalog = Digest::of(b"catalog");
    let text = line
        .replacen("<sha256>", &policy.hash().unwrap().to_string(), 1)
        .replacen("<sha256>", &catalog.to_string(), 1)
        .replacen('…', "ann@example.com", 1)
        .replacen('…', "mcp", 1)
        .replacen('…', "what \\\"is\\\" it?", 1);
    let answer = resolve_capabilities(&Input {
        policy: &policy,
        catalog: Some(catalog),
        asker: Asker {
            callers: &["ann@example.com"],
            platform: "mcp",
            ..Asker::default()
        },
        query: Some("what \"is\" it?"),
        skills: &[],
    });
    assert_eq!(answer.cache_key, Digest::of(text.as_bytes()), "{text}");
}

//! The tools with which agents add, update and check skills of sources.

use std::io::{BufRead as _, BufReader, Write as _};

use super::*;

/// Calls tools of `vault mcp` and returns the responses in order.
fn tools(machine: &Machine, calls: &[(&str, Value)]) -> Vec<Value> {
    let mut child = machine
        .command(&["mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut ask = |message: Value| {
        writeln!(input, "{message}").unwrap();
        input.flush().unwrap();
        if message.get("id").is_none() {
            return Value::Null;
        }
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let client = json!({ "name": "test", "version": "1" });
    ask(
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client } }),
    );
    ask(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let answers = calls
        .iter()
        .map(|(name, arguments)| {
            let params = json!({ "name": name, "arguments": arguments });
            ask(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }))
                    ["result"]
                    .clone()
        })
        .collect();
    drop(input);
    child.wait().unwrap();
    answers
}

/// Asserts the value at this pointer in a tool's structured response.
fn has(answer: &Value, pointer: &str, wanted: &Value) {
    let found = answer["structuredContent"].pointer(pointer);
    assert_eq!(found, Some(wanted), "{answer}");
}

#[test]
fn agents_add_update_and_check_through_the_tools() {
    let repository = Repository::new();
    repository
        .write("pdf/SKILL.md", skill_md("pdf"))
        .write("csv/SKILL.md", skill_md("csv"));
    repository.commit();
    let machine = Machine::new();
    std::fs::write(
        machine.home.path().join(".gitconfig"),
        format!(
            "[url \"{}\"]\n\tinsteadOf = https://github.com/acme/skills.git\n",
            repository.address()
        ),
    )
    .unwrap();
    let git = json!({ "source": "git", "identifier": "github:acme/skills" });
    let named = json!({ "source": "git", "identifier": "github:acme/skills", "skill": "pdf" });
    let answers = tools(
        &machine,
        &[
            ("add_skill", git),
            ("add_skill", named.clone()),
            ("add_skill", named),
            ("check_updates", json!({})),
        ],
    );
    assert_eq!(answers[0]["isError"], true, "{}", answers[0]);
    assert!(
        answers[0].to_string().contains("several skills"),
        "{}",
        answers[0]
    );
    has(&answers[1], "/status", &json!("accepted"));
    has(&answers[2], "/status", &json!("duplicate"));
    has(&answers[3], "/up_to_date", &json!(["pdf"]));
    repository.write("pdf/more.md", "more");
    repository.commit();
    let answers = tools(
        &machine,
        &[
            ("check_updates", json!({ "skill": "pdf" })),
            ("update_skill", json!({ "name": "pdf" })),
            ("check_updates", json!({})),
        ],
    );
    has(&answers[0], "/drifted/0/name", &json!("pdf"));
    has(&answers[1], "/version", &json!(2));
    has(&answers[2], "/up_to_date", &json!(["pdf"]));
    // The policy applies to tools as it does to commands.
    machine.policy("[sources]\nallow = []\n");
    let answers = tools(
        &machine,
        &[
            (
                "add_skill",
                json!({ "source": "git", "identifier": "github:acme/skills/csv" }),
            ),
            ("update_skill", json!({ "name": "pdf" })),
        ],
    );
    for answer in answers {
        assert!(
            answer
                .to_string()
                .contains("no pattern of `allow` covers it"),
            "{answer}"
        );
    }
}

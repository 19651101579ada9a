//! The tools with which agents add, update and check skills of sources.

use super::*;
use crate::support::agent::Agent;

/// Calls tools of `vault mcp` and returns the responses in order.
fn tools(machine: &Machine, calls: &[(&str, Value)]) -> Vec<Value> {
    let mut agent = Agent::start(machine.command(&["mcp"]));
    agent.greet();
    let answers = calls
        .iter()
        .map(|(name, arguments)| agent.call(name, arguments));
    let answers = answers.collect();
    agent.end();
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
    let settings = format!(
        "[url \"{}\"]\n\tinsteadOf = https://github.com/acme/skills.git\n",
        repository.address()
    );
    machine.home.write(".gitconfig", settings);
    let git = json!({ "source": "git", "identifier": "github:acme/skills" });
    let page = "https://github.com/acme/skills.git";
    let named = json!({ "source": "git", "identifier": page, "skill": "pdf" });
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
    assert!(answers[0].to_string().contains("several skills"));
    has(&answers[1], "/status", &json!("accepted"));
    has(&answers[2], "/status", &json!("duplicate"));
    has(&answers[3], "/up_to_date", &json!(["pdf"]));
    repository.write("pdf/more.md", "more");
    repository.commit();
    let update = ("update_skill", json!({ "name": "pdf" }));
    let check = ("check_updates", json!({ "skill": "pdf" }));
    let check_all = ("check_updates", json!({}));
    let answers = tools(&machine, &[check, update.clone(), check_all]);
    has(&answers[0], "/drifted/0/name", &json!("pdf"));
    has(&answers[1], "/version", &json!(2));
    has(&answers[2], "/up_to_date", &json!(["pdf"]));
    // The policy applies to tools as it does to commands.
    machine.policy("[sources]\nallow = []\n");
    let other = json!({ "source": "git", "identifier": "github:acme/skills/csv" });
    for answer in tools(&machine, &[("add_skill", other), update]) {
        let text = answer.to_string();
        assert!(text.contains("no pattern in `allow` matches it"), "{text}");
    }
}

#[test]
fn a_source_that_does_not_answer_is_no_fault_of_the_arguments() {
    let machine = Machine::new();
    // Nothing listens at this address.
    let settings = "[url \"http://127.0.0.1:9/\"]\n\tinsteadOf = https://github.com/\n";
    machine.home.write(".gitconfig", settings);
    let absent = json!({ "source": "git", "identifier": "acme/skills/pdf" });
    for answer in tools(&machine, &[("add_skill", absent)]) {
        assert_eq!(answer["isError"], true, "{answer}");
        let meta = answer["_meta"].as_object().unwrap().values().next();
        assert_eq!(meta.unwrap()["code"], "source_unreachable", "{answer}");
    }
}

#[test]
fn a_waiting_update_does_not_fetch_from_another_source_than_its_review_names() {
    let (first, second) = (Repository::new(), Repository::new());
    for repository in [&first, &second] {
        repository.write("pdf/SKILL.md", skill_md("pdf")).commit();
    }
    let machine = Machine::new();
    let lead = |repository: &Repository, name: &str| {
        let address = repository.address();
        format!("[url \"{address}\"]\n\tinsteadOf = https://github.com/acme/{name}.git\n")
    };
    let settings = [lead(&first, "first"), lead(&second, "second")].concat();
    machine.home.write(".gitconfig", settings);
    machine.run(&["add", "github:acme/first/pdf"]).ok();
    first.write("pdf/more.md", "more").commit();
    let mut command = machine.command(&["mcp"]);
    command.env("VAULT_MCP_WRITES", "draft");
    let mut agent = Agent::start(command);
    agent.greet();
    let drafted = agent.call("update_skill", &json!({ "name": "pdf" }));
    agent.end();
    let id = &drafted["structuredContent"]["draft_id"];
    let id = id.as_str().unwrap_or_else(|| panic!("{drafted}"));
    machine.run(&["drafts", "show", id]).ok();
    let replaced = machine.run(&["add", "github:acme/second/pdf", "--replace"]);
    replaced.ok();
    let outdated = machine.run(&["drafts", "show", id]);
    let outdated = outdated.fails(3, "draft_outdated");
    assert!(
        outdated["message"].to_string().contains("acme/second"),
        "{outdated}"
    );
}

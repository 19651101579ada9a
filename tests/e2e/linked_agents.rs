//! From a transform on the publisher's machine to the right bytes in each agent's folder of a linked
//! machine.

use std::fs;

use vault_tests::home::Home;
use vault_tests::server::{Database, Server};

use crate::support::{self, SLUG};

const CODEX: &str = ".agents/skills";
const CLAUDE: &str = ".claude/skills";
const PLAIN: &str = "Beta as it was signed, for everybody.";
const VARIANT: &str = "Beta, as codex needs it.";

/// The line of `beta` that an agent reads; `None` if it has no such skill.
fn seen(machine: &Home, folder: &str) -> Option<String> {
    let file = machine.path().join(folder).join("beta/SKILL.md");
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with("description:"));
    line.map(|line| {
        line.trim_start_matches("description:")
            .trim()
            .trim_matches('"')
            .to_owned()
    })
}

fn assert_seen(machine: &Home, codex: Option<&str>, claude: Option<&str>) {
    let seen = (seen(machine, CODEX), seen(machine, CLAUDE));
    assert_eq!((seen.0.as_deref(), seen.1.as_deref()), (codex, claude));
}

#[test]
fn a_transform_reaches_the_folder_of_its_agent_on_a_linked_machine_and_no_other() {
    let server = Server::start(&Database::Sqlite);
    let (owner, machine) = (Home::new(), Home::new());
    let document = format!("---\nname: beta\ndescription: {PLAIN}\n---\nHi.\n");
    let folder = owner.skill("beta", &[("SKILL.md", document.as_bytes())]);
    owner.json(&["add", folder.to_str().unwrap()]);
    support::connect(&server, &owner, SLUG);
    owner.json("sync --cloud");
    support::link(&server, &owner, &machine, SLUG);
    for mark in [".codex", ".claude"] {
        fs::create_dir(machine.path().join(mark)).unwrap();
    }
    machine.json("cloud pull");
    machine.json("sync-profiles --discover");
    assert_seen(&machine, Some(PLAIN), Some(PLAIN));

    // The transform alone publishes the variant; no profiles.toml is needed.
    let file = owner.path().join("rules.md");
    let text =
        format!("---\nagents: [codex]\nset: {{description: \"{VARIANT}\"}}\n---\nThe way.\n");
    fs::write(&file, text).unwrap();
    let added = owner
        .run(&["transform", "add", "beta", file.to_str().unwrap()])
        .ok();
    assert!(
        added.stdout.contains("vault sync` publishes it"),
        "{}",
        added.stdout
    );
    owner.json("sync --cloud");
    let pulled = machine.json("cloud pull");
    assert_eq!(pulled["updated"][0], "beta");
    assert_seen(&machine, Some(VARIANT), Some(PLAIN));
    let profiles = machine.json("profiles");
    let codex = profiles
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["agent"] == "codex");
    let variant = &codex.unwrap()["variants"][0];
    assert_eq!(
        (&variant["skill"], &variant["by"]),
        (&"beta".into(), &"publisher".into())
    );
    let doctor = machine.run("doctor beta").stdout;
    assert!(doctor.contains("codex sees a variant of it"), "{doctor}");
    machine.json("verify");

    // A selection for an agent chooses skills, not their form.
    machine.json("cloud pull --agent codex --yes");
    assert_seen(&machine, Some(VARIANT), Some(PLAIN));

    // A profile that leaves the skill out takes it from its agent alone.
    let rules = "[[profile]]\nname = \"codex\"\nagent = \"codex\"\n[[profile]]\nname = \"claude\"\nagent = \"claude-code\"\ninclude_tags = [\"none\"]\n";
    fs::write(owner.vault().join("profiles.toml"), rules).unwrap();
    owner.json("approve profiles.toml --yes");
    owner.json("sync --cloud");
    machine.json("cloud pull --all");
    assert_seen(&machine, Some(VARIANT), None);
    let why = machine.run("profiles claude-code").ok().stdout;
    assert!(
        why.contains("beta") && why.contains("leaves it out"),
        "{why}"
    );

    // What is withdrawn goes from every agent.
    owner.json(&["remove", "beta", "--withdraw", "leaks a name", "--yes"]);
    owner.json("sync --cloud");
    machine.json("cloud pull");
    assert_seen(&machine, None, None);
}

//! Publishes three skills into a hosted vault as its owner does at a terminal (`add`,
//! `cloud connect`, `sync --cloud`), for the walks that read them there; see `tests/run`.
//!
//!   `vault-clients-release ADDRESS`     ADDRESS is the vault's, `https://host/v/slug`
//!
//! Signs in with the account of `VAULT_ADMIN_EMAIL` and `VAULT_ADMIN_PASSWORD`. The signing key is
//! gone with the program, so this is for a vault that has no release yet; another is left as it is,
//! with the refusal of `sync`.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::Value;
use vault_tests::home::Home;
use vault_tests::person::{Answer, Person};

const SKILLS: [&str; 3] = ["greeting", "release-notes", "table-of-files"];
/// The skill that is meant for one agent alone.
const FOR_CODEX: &str = "release-notes";

fn main() -> ExitCode {
    let mut given = std::env::args().skip(1);
    let (Some(address), None) = (given.next(), given.next()) else {
        say("vault-clients-release: one address, as https://host/v/slug");
        return ExitCode::from(2);
    };
    let (email, password) = (
        variable("VAULT_ADMIN_EMAIL"),
        variable("VAULT_ADMIN_PASSWORD"),
    );
    let owner = Person {
        email: &email,
        password: &password,
        scopes: &["read", "write"],
    };
    let home = Home::new();
    let mut add = vec!["add".to_owned()];
    for name in SKILLS {
        let agents = if name == FOR_CODEX {
            "agents: [codex]\n"
        } else {
            ""
        };
        let text = format!(
            "---\nname: {name}\ndescription: A made-up skill to see {name} through the clients.\ntags: [test]\n{agents}---\nRead references/more.md.\n"
        );
        let more = format!("More about {name}.\r\n");
        // No text in any encoding: it travels in base64.
        let noise: Vec<u8> = (0..3000_u32)
            .map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0])
            .collect();
        let files: [(&str, &[u8]); 3] = [
            ("SKILL.md", text.as_bytes()),
            ("references/more.md", more.as_bytes()),
            ("noise.bin", &noise),
        ];
        add.push(home.skill(name, &files).display().to_string());
    }
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    home.json(&add);
    let connected = home
        .sign_in(
            &["cloud", "connect", &address, "--json"],
            owner,
            Answer::Loopback,
        )
        .data();
    let release = home.json(&["sync", "--cloud"]);
    say(&format!(
        "{} as {}: release {}, {} skills",
        address,
        word(&connected["role"]),
        release["release"],
        release["skills"]
    ));
    ExitCode::SUCCESS
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

#[expect(
    clippy::disallowed_methods,
    reason = "told by variables, as the clients beside it"
)]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

//! A publisher's key that OpenSSH's agent holds.

use vault_tests::home::Home;
use vault_tests::server::{Database, Server};
use vault_tests::ssh_agent::SshAgent;

use crate::support::{self, SLUG, text};

/// A vault whose recovery key is in a file of its home, so that this machine's key only publishes.
fn vault_with_recovery_key() -> (Home, String) {
    let home = Home::new();
    home.add("first", "Text.").ok();
    let file = home.path().join("vault.recovery");
    let file = file.to_str().unwrap().to_owned();
    home.json(&format!("key recovery create {file} --yes"));
    (home, file)
}

#[test]
fn a_key_in_the_agent_signs_skills_and_releases() {
    let server = Server::start(&Database::Sqlite);
    let (anna, recovery) = vault_with_recovery_key();
    let agent = SshAgent::start(&anna);
    let fingerprint = agent.add_key("id_vault", "ed25519", &[]);
    let rotate = format!("key rotate --root-key {recovery} --signer ssh-agent:{fingerprint} --yes");
    anna.json(&rotate);
    let shown = anna.json("key show");
    assert_eq!(text(&shown["ssh_agent"]), fingerprint);
    assert!(shown["secret_key"].is_null(), "no key file: {shown}");
    assert_eq!(anna.own_keys().len(), 1, "the old key's file is gone");

    anna.add("second", "Signed by the agent.").ok();
    support::connect(&server, &anna, SLUG);
    assert_eq!(anna.json("sync --cloud")["release"], 1);
    let laptop = Home::new();
    support::link(&server, &anna, &laptop, SLUG);
    assert_eq!(laptop.json("cloud pull")["release"], 1);
    assert_eq!(support::pulled(&laptop).len(), 2);
    anna.run("verify").ok();
}

#[test]
fn what_the_agent_does_not_do_ends_with_4_and_changes_nothing() {
    let (anna, recovery) = vault_with_recovery_key();
    let agent = SshAgent::start(&anna);
    let fingerprint = agent.add_key("id_vault", "ed25519", &["-c"]);
    let other = agent.add_key("id_other", "ecdsa", &[]);
    let rotate = |fingerprint: &str| {
        format!("key rotate --root-key {recovery} --signer ssh-agent:{fingerprint} --yes")
    };
    let refused = |command: &str, says: &str| {
        let refused = anna.fails(command, 4, "ssh_agent");
        assert!(refused.message.contains(says), "{}", refused.message);
        assert_eq!(anna.json("list")["skills"].as_array().unwrap().len(), 1);
    };
    // A key of another kind, one that the agent lacks, one that its person keeps back.
    refused(&rotate(&other), "of the kind ecdsa-sha2-nistp256");
    let unknown = format!("SHA256:{}", "A".repeat(43));
    refused(&rotate(&unknown), "does not hold the key SHA256:AAAA");
    agent.person_answers("exit 1");
    refused(&rotate(&fingerprint), "refused to sign");
    agent.person_answers("exit 0");
    anna.json(&rotate(&fingerprint));

    let folder = anna.plain_skill("second", "Text.");
    let add = format!("add {}", folder.display());
    agent.person_answers("exit 1");
    refused(&add, "refused to sign");
    agent.person_answers("echo passphrase");
    agent.ssh("ssh-add", &["-x"]);
    refused(&add, "does not hold the key");
    agent.ssh("ssh-add", &["-X"]);
    agent.ssh("ssh-add", &["-D"]);
    refused(&add, "does not hold the key");
    let found = anna.run("doctor --json").json();
    assert!(found.to_string().contains("\"ssh_agent\""), "{found}");
    drop(agent);
    refused(&add, "SSH_AUTH_SOCK is not set");
    std::fs::write(anna.path().join("agent.sock"), "").unwrap();
    refused(&add, "cannot be reached");
    std::fs::remove_file(anna.path().join("agent.sock")).unwrap();

    // The same key in another agent goes on.
    let agent = SshAgent::start(&anna);
    let file = anna.path().join("id_vault");
    agent.ssh("ssh-add", &["-q", file.to_str().unwrap()]);
    anna.json(&add);
    anna.run("verify").ok();
}

#[test]
fn a_key_that_may_change_the_vault_s_keys_stays_out_of_the_agent() {
    let anna = Home::new();
    anna.add("first", "Text.").ok();
    let agent = SshAgent::start(&anna);
    let fingerprint = agent.add_key("id_vault", "ed25519", &[]);
    let rotate = format!("key rotate --signer ssh-agent:{fingerprint} --yes");
    let refused = anna.fails(&rotate, 1, "root_not_made");
    assert!(refused.hint.unwrap().contains("vault key recovery create"));
    anna.run("verify").ok();
    // What is no fingerprint of an agent's key is a mistake of the command line.
    anna.fails("key rotate --signer ssh-agent:abc --yes", 2, "usage");
}

//! How a program of yours uses vault's library: the five functions that it exports, on the system's
//! clock and randomness.
//!
//! `cargo run -p vault-library --example integrate` works in a temporary folder and prints what
//! each function reports.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::fs;
use std::sync::Arc;

use async_trait::async_trait;
use vault_format::draft::Source;
use vault_format::manifest::Mode;
use vault_format::name::SkillName;
use vault_gate::RawFile;
use vault_library::admit::Options;
use vault_library::admit::approve::write_approved;
use vault_library::agents::Machine;
use vault_library::{
    AddSkill, AuthoredFile, ProposeSkill, ResolveInput, SyncProfilesInput, UpdateSkill, Vault,
    VaultPaths, add_skill, propose_skill, resolve_capabilities, sync_profiles, update_skill,
};
use vault_policy::Policy;
use vault_shelf::DriftState;
use vault_shelf::fetch::{Fetch, FetchFault, FetchedSkill, Upstream};
use vault_store::clock::SystemClock;
use vault_store::random::SystemRandom;

const POLICY: &str = r#"
[profiles.reader]
groups = ["greetings"]
[groups.greetings]
skills = ["greet", "thank"]
[callers."ann@example.com"]
profile = "reader"
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let home = tempfile::tempdir()?;
    fs::create_dir(home.path().join(".claude"))?; // one agent is on this machine
    let paths = VaultPaths::new(
        home.path().join(".vault"),
        home.path().join(".config/vault"),
    );
    let vault = Vault::open_or_create(paths, Arc::new(SystemClock), Arc::new(SystemRandom))?;

    // 1. Add a skill from any source that the fetcher knows; a folder of this machine needs no
    //    fetcher.
    let address = "https://example.com/greet/SKILL.md";
    let input = AddSkill {
        source: address.to_owned(),
        skill: None,
        fetch: Some(Arc::new(Website("Say hello."))),
        options: Options::default(),
    };
    let added = add_skill(&vault, &input).await?;
    println!("added {} version {}", added.name, added.version);

    // 2. Take in what a user or an agent wrote, after the same checks.
    let text = "---\nname: thank\ndescription: Thanks people. Use when somebody helped.\n---\nSay thank you.\n";
    let proposed = propose_skill(
        &vault,
        &ProposeSkill::from_skill_md("ann@example.com", text),
    )?;
    println!("proposed {:?}: {:?}", proposed.name, proposed.outcome);

    // 3. Fetch an installed skill again: its source has another text by now.
    let input = UpdateSkill {
        name: "greet".parse()?,
        fetch: Arc::new(Website("Say good day.")),
    };
    let updated = update_skill(&vault, &input).await?;
    println!("updated {}: {:?}", updated.name, updated.outcome);

    // 4. Ask what a caller may use. A policy that another program writes counts once the owner
    //    approved it.
    write_approved(&vault, &AuthoredFile::Policy, POLICY.as_bytes())?;
    let ann = resolve_capabilities(&ResolveInput {
        vault: &vault,
        policy: None,
        callers: &["ann@example.com"],
        bound_profile: None,
        platform: "cli",
        channel: None,
        query: None,
    })?;
    let names: Vec<_> = ann.skills.iter().map(|skill| skill.name.as_str()).collect();
    println!("ann may use {names:?}");
    assert_eq!(names, ["greet", "thank"]);

    // 5. Link the installed skills into the folders of the agents.
    let input = SyncProfilesInput {
        machine: Machine::with_home(home.path()),
        discover: true,
        ..SyncProfilesInput::default()
    };
    let synced = sync_profiles(&vault, &input)?;
    println!("agents must restart: {}", synced.restart_required);
    assert!(home.path().join(".claude/skills/greet/SKILL.md").exists());
    Ok(())
}

#[test]
fn the_example_runs() -> Result<(), Box<dyn Error>> {
    main()
}

/// A fetcher: one website whose only skill has this body. A real one asks the network; it checks
/// nothing, since the library gates and signs whatever it brings.
#[derive(Debug)]
struct Website(&'static str);

impl Website {
    fn skill(&self) -> FetchedSkill {
        let text = format!(
            "---\nname: greet\ndescription: Greets people.\n---\n{}\n",
            self.0
        );
        let identifier = "https:https://example.com/greet/SKILL.md";
        FetchedSkill {
            files: vec![RawFile {
                path: "SKILL.md".to_owned(),
                mode: Mode::Plain,
                bytes: text.into_bytes(),
            }],
            folder: None,
            upstream: Upstream {
                identifier: identifier.parse().expect("a valid identifier"),
                address: None,
                path: None,
                reference: None,
                revision: None,
                tree: None,
                signer: None,
                root_version: None,
                signed_version: None,
                copied_links: Vec::new(),
            },
        }
    }
}

#[async_trait]
impl Fetch for Website {
    async fn fetch(
        &self,
        _source: &Source,
        _skill: Option<&SkillName>,
        _policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        Ok(self.skill())
    }

    async fn fetch_text(
        &self,
        _source: &str,
        _skill: Option<&SkillName>,
        _policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        Ok(self.skill())
    }

    async fn fetch_again(
        &self,
        _upstream: &Upstream,
        _policy: Option<&Policy>,
    ) -> Result<FetchedSkill, FetchFault> {
        Ok(self.skill())
    }

    async fn compare(
        self: Arc<Self>,
        upstreams: Vec<Upstream>,
        _: Option<&Policy>,
        answer: &mut (dyn FnMut(usize, DriftState) + Send),
    ) {
        (0..upstreams.len()).for_each(|at| answer(at, DriftState::UpToDate));
    }
}

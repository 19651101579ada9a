//! Tests of several publishers of one vault: joining it, taking over each other's work, conflicts.

use std::sync::Arc;

use vault_format::keys::PublicKey;
use vault_format::root::{KeyEntry, KeyRequest};
use vault_library::adopt;
use vault_library::join::{self, JoinError};
use vault_library::keys::NoPassphrases;
use vault_library::publish::{
    self, Conflicts, OnDivergence, Plan, PlanError, PlanRequest, PolicyChange, TakeOver,
};
use vault_library::recovery::RecoveredPlace;
use vault_library::roots::RootsError;
use vault_library::{AdmitReport, AuthoredFile, Vault, VaultError, VaultPaths, roots, run};
use vault_policy::profile::Profile;
use vault_testing::SeededRandom;

use crate::support::host::Host;
use crate::support::pair::Pair;
use crate::support::{self, Home, name};

const POLICY: &str = "default_profile = \"all\"\n\n[profiles.all]\ngroups = [\"*\"]\n";

/// Anna, who made the vault, and Bob, whose machine linked it and joined.
struct Team {
    pair: Pair,
    bob: Home,
}

impl Team {
    /// Bob has joined, is a publisher, and has taken over what Anna published.
    fn new(skills: &[&str]) -> Self {
        let mut pair = Pair::new(skills, "x");
        pair.pull_all();
        let (bob, key) = joined(&pair);
        let entry = KeyEntry {
            public_key: key,
            name: "bob".parse().unwrap(),
        };
        roots::add_publisher(&pair.owner.vault, None, entry).unwrap();
        pair.publish();
        let mut team = Self { pair, bob };
        publish::take_roots(&team.bob.vault, &team.pair.host.request()).unwrap();
        team.take_over(&Who::Bob, OnDivergence::Stop).unwrap();
        assert!(team.sync(&Who::Bob).is_none(), "nothing of his own yet");
        team
    }

    fn vault(&self, who: &Who) -> &Vault {
        match who {
            Who::Anna => &self.pair.owner.vault,
            Who::Bob => &self.bob.vault,
        }
    }

    fn host(&self) -> &Host {
        &self.pair.host
    }

    /// Takes over what the current release changed.
    fn take_over(&mut self, who: &Who, on: OnDivergence) -> Result<Option<TakeOver>, PlanError> {
        let request = PlanRequest {
            on_divergence: on,
            ..self.host().request()
        };
        let vault = self.vault(who);
        let Plan::TakeOver(taken) = publish::plan(vault, &request)? else {
            return Ok(None);
        };
        let object = |hash: &_| self.host().objects.get(hash).cloned();
        adopt::take_over(vault, &taken, &object).unwrap();
        Ok(Some(taken))
    }

    /// Publishes; `None` if nothing changed. Panics if there is anything to take over first.
    fn sync(&mut self, who: &Who) -> Option<u64> {
        let profiles = self.profiles();
        let request = PlanRequest {
            current_profiles: Some(&profiles),
            ..self.pair.host.request()
        };
        let vault = self.vault(who).clone();
        match publish::plan(&vault, &request).unwrap() {
            Plan::Unchanged(_) => None,
            Plan::Publish(plan) => {
                let now = self.pair.owner.now();
                self.pair.host.take(&vault, &plan, now);
                Some(plan.release)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The profiles of the current release.
    fn profiles(&self) -> Vec<Profile> {
        let catalog = self.host().catalog();
        let entries = catalog.profiles.iter();
        entries
            .map(|entry| Profile::parse(&self.host().objects[&entry.bundle_hash]).unwrap())
            .collect()
    }

    fn refusal(&self, who: &Who) -> Conflicts {
        let profiles = self.profiles();
        let request = PlanRequest {
            current_profiles: Some(&profiles),
            ..self.host().request()
        };
        match publish::plan(self.vault(who), &request) {
            Err(PlanError::Conflicts(conflicts)) => conflicts,
            other => panic!("{other:?}"),
        }
    }
}

enum Who {
    Anna,
    Bob,
}

/// Joins the vault on the machine that has linked it, in a folder beside that of its user's own vault.
fn joined(pair: &Pair) -> (Home, PublicKey) {
    let mut device = pair.device.copy();
    let place = place(&device);
    let (vault, key) = join::join(&place, pair.owner.vault.id(), None).unwrap();
    device.vault = vault;
    let bob = device;
    assert_eq!(bob.vault.id(), pair.owner.vault.id());
    assert!(matches!(
        bob.vault.release_key(),
        Err(VaultError::NoReleaseKey(_))
    ));
    (bob, key)
}

fn place(home: &Home) -> RecoveredPlace {
    RecoveredPlace {
        paths: VaultPaths::new(home.path("team"), home.path("config")),
        clock: Arc::clone(&home.clock) as _,
        random: Arc::new(SeededRandom::new(77)),
        passphrases: Arc::new(NoPassphrases),
    }
}

/// Admits other content of a skill that another machine may have added.
fn edit(home: &Home, skill: &str, body: &str) -> AdmitReport {
    let folder = home.source(skill, body, &[]);
    home.add_with(&folder, &support::replacing()).unwrap()
}

fn write_policy(vault: &Vault, text: &str) {
    vault_library::admit::approve::write_approved(vault, &AuthoredFile::Policy, text.as_bytes())
        .unwrap();
}

#[test]
fn a_machine_joins_a_vault_that_it_has_linked_and_asks_to_publish() {
    let pair = Pair::new(&["hers"], "x");
    pair.pull_all();
    let (bob, key) = joined(&pair);
    // Once more, for example after a kill: the same key.
    let (again, same) = join::join(&place(&bob), bob.vault.id(), None).unwrap();
    assert_eq!((again.id(), same), (bob.vault.id(), key));
    let slug = &pair.host.slug;
    let bytes = join::request(&bob.vault, slug, &key, None).unwrap();
    let request = KeyRequest::verify(&bytes, *pair.owner.vault.id(), slug).unwrap();
    assert_eq!(request.public_key, key);
    // A vault of which this machine has seen no keys is not joined, and none in another one's folder.
    let unknown = join::join(&place(&Home::new(5)), pair.owner.vault.id(), None);
    assert!(
        matches!(unknown, Err(JoinError::NotLinked(_))),
        "{unknown:?}"
    );
    let device = pair.device.copy();
    let mut other = place(&device);
    other.paths.root = device.path("vault");
    let taken = join::join(&other, pair.owner.vault.id(), None);
    assert!(
        matches!(taken, Err(JoinError::Roots(RootsError::Recovery(_)))),
        "{taken:?}"
    );
}

#[test]
fn publishers_take_over_what_only_the_other_changed() {
    let mut team = Team::new(&["common", "hers"]);
    let anna_key = team.pair.owner.vault.release_key().unwrap();
    assert_eq!(team.bob.listed().len(), 2);
    let signer = run::inspect(&team.bob.vault, name("hers")).unwrap().signer;
    assert_eq!(signer, anna_key, "her signature is kept");

    team.bob.add("his", "x");
    edit(&team.bob, "common", "bob's");
    assert_eq!(team.sync(&Who::Bob), Some(3));
    support::remove(&team.pair.owner.vault, "hers", None);
    team.pair.owner.add("new", "x");
    let taken = team
        .take_over(&Who::Anna, OnDivergence::Stop)
        .unwrap()
        .unwrap();
    let names: Vec<_> = taken
        .skills
        .iter()
        .map(|skill| skill.name.to_string())
        .collect();
    assert_eq!(
        (names, taken.removed.len()),
        (vec!["common".into(), "his".into()], 0)
    );
    assert_eq!(team.sync(&Who::Anna), Some(4));
    let all: Vec<_> = team.pair.owner.listed().into_keys().collect();
    assert_eq!(all, ["common", "his", "new"]);

    let taken = team
        .take_over(&Who::Bob, OnDivergence::Stop)
        .unwrap()
        .unwrap();
    assert_eq!(
        taken.removed,
        [name("hers")],
        "what she removed goes here too"
    );
    assert!(team.sync(&Who::Bob).is_none());
    assert_eq!(team.bob.listed(), team.pair.owner.listed());
    assert!(team.bob.is_clean() && team.pair.owner.is_clean());
    team.pair.pull_all();
    assert!(team.pair.is_clean());
}

#[test]
fn what_both_publishers_changed_is_named_and_nothing_is_signed() {
    let mut team = Team::new(&["a", "b", "c"]);
    edit(&team.bob, "a", "bob's");
    support::remove(&team.bob.vault, "b", None);
    edit(&team.bob, "c", "bob's");
    assert_eq!(team.sync(&Who::Bob), Some(3));
    let anna = &team.pair.owner;
    anna.add("a", "anna's");
    anna.add("b", "anna's");
    support::remove(&anna.vault, "c", None);
    let before = support::durable(&anna.vault);
    let refused = team.refusal(&Who::Anna);
    assert_eq!(
        (refused.changed, refused.removed_there, refused.removed_here),
        (vec![name("a")], vec![name("b")], vec![name("c")])
    );
    assert_eq!(support::durable(&team.pair.owner.vault), before);

    // She takes his, and admits her change as the next version.
    let taken = team
        .take_over(&Who::Anna, OnDivergence::Adopt)
        .unwrap()
        .unwrap();
    assert_eq!((taken.skills.len(), taken.removed.len()), (2, 1));
    assert_eq!(edit(&team.pair.owner, "a", "anna's").version, 3);
    assert_eq!(team.sync(&Who::Anna), Some(4));
}

#[test]
fn an_interrupted_take_over_goes_on_with_what_is_left() {
    let mut team = Team::new(&["common"]);
    for skill in ["one", "two"] {
        team.bob.add(skill, "x");
    }
    write_policy(&team.bob.vault, POLICY);
    team.sync(&Who::Bob).unwrap();
    let request = team.host().request();
    let anna = &team.pair.owner.vault;
    let Plan::TakeOver(all) = publish::plan(anna, &request).unwrap() else {
        panic!("nothing to take over")
    };
    let object = |hash: &_| team.host().objects.get(hash).cloned();
    adopt::adopt(anna, &all.skills[..1], &object).unwrap();
    let Plan::TakeOver(left) = publish::plan(anna, &request).unwrap() else {
        panic!("nothing is left")
    };
    assert_eq!(
        (left.skills, left.policy),
        (all.skills[1..].to_vec(), all.policy)
    );
    // An object that is missing or changed stops it before anything is taken over.
    let before = support::durable(anna);
    assert!(adopt::take_over(anna, &all, &|_| None).is_err());
    assert!(adopt::take_over(anna, &all, &|_| Some(b"{}".to_vec())).is_err());
    assert_eq!(support::durable(anna), before);
}

#[test]
fn the_policy_of_a_release_is_everybody_s() {
    let mut team = Team::new(&["common"]);
    write_policy(&team.pair.owner.vault, POLICY);
    team.sync(&Who::Anna).unwrap();
    let taken = team
        .take_over(&Who::Bob, OnDivergence::Stop)
        .unwrap()
        .unwrap();
    assert!(matches!(taken.policy, PolicyChange::Take(_)));
    // A publisher without a word on the policy publishes it as it is.
    team.bob.add("his", "x");
    team.sync(&Who::Bob).unwrap();
    let published = team.host().catalog().policy;
    assert!(published.is_some());
    team.take_over(&Who::Anna, OnDivergence::Stop)
        .unwrap()
        .unwrap();
    assert!(team.sync(&Who::Anna).is_none());
    assert_eq!(
        team.pair.owner.read("vault/policy.toml"),
        POLICY,
        "her text stays"
    );

    // Bob changes it; Anna's text becomes his.
    write_policy(
        &team.bob.vault,
        &POLICY.replace("[\"*\"]", "[\"some\"]\n[groups.some]\nskills = [\"his\"]"),
    );
    team.sync(&Who::Bob).unwrap();
    // What she has not approved is not overwritten.
    let path = team.pair.owner.path("vault/policy.toml");
    std::fs::write(&path, format!("{POLICY}\n# note\n")).unwrap();
    assert!(team.refusal(&Who::Anna).policy);
    std::fs::write(&path, POLICY).unwrap();
    team.take_over(&Who::Anna, OnDivergence::Stop)
        .unwrap()
        .unwrap();
    assert!(team.pair.owner.read("vault/policy.toml").contains("his"));
    assert!(team.sync(&Who::Anna).is_none());

    // Both change it: a conflict. One removes it: the other follows.
    write_policy(&team.bob.vault, POLICY);
    team.sync(&Who::Bob).unwrap();
    write_policy(&team.pair.owner.vault, "[profiles.none]\ngroups = []\n");
    assert!(team.refusal(&Who::Anna).policy);
    team.take_over(&Who::Anna, OnDivergence::Adopt)
        .unwrap()
        .unwrap();
    std::fs::remove_file(team.bob.path("team/policy.toml")).unwrap();
    support::approve_all(&team.bob.vault).unwrap();
    team.sync(&Who::Bob).unwrap();
    let taken = team
        .take_over(&Who::Anna, OnDivergence::Stop)
        .unwrap()
        .unwrap();
    assert_eq!(taken.policy, PolicyChange::Remove);
    assert!(!path.exists());
}

#[test]
fn profiles_that_only_another_publisher_makes_are_not_lost() {
    let mut team = Team::new(&["common"]);
    let rules = "[[profile]]\nname = \"editors\"\nagent = \"claude-code\"\n";
    let write_rules = |vault: &Vault| {
        support::write(&vault.paths().root.join("profiles.toml"), rules);
        support::approve_all(vault).unwrap();
    };
    write_rules(&team.pair.owner.vault);
    team.sync(&Who::Anna).unwrap();
    team.bob.add("his", "x");
    // Without having asked for the profiles nothing is planned.
    let asked = publish::plan(&team.bob.vault, &team.host().request()).unwrap();
    assert!(matches!(asked, Plan::FetchProfiles(entries) if entries.len() == 1));
    let refused = team.refusal(&Who::Bob);
    assert_eq!(refused.profiles, ["editors (claude-code)"]);
    write_rules(&team.bob.vault);
    team.sync(&Who::Bob).unwrap();
    assert_eq!(team.profiles()[0].skills.len(), 2);
}

//! Tests of releases: what causes one, what does not, what prevents one, and what an interrupted
//! push leaves.

use std::collections::BTreeSet;

use crate::support::host::{BASE, Host, planned, read};
use crate::support::{self, Home};
use vault_format::hash::Digest;
use vault_format::index;
use vault_library::add_folder;
use vault_library::admit::remove;
use vault_library::admit::variants as transforms;
use vault_library::admit::{Admission, Options};
use vault_library::adopt::{self, AdoptError};
use vault_library::publish::{self, OnDivergence, Plan, PlanError, PlanRequest};
use vault_policy::profile::Profile;

const DAY: i64 = 86_400;

#[test]
fn a_release_is_this_library_exactly_and_comes_only_with_a_change() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    let first = host.sync(&home.vault, home.now()).unwrap();
    assert_eq!((first.release, first.skills), (1, 0));
    let catalog = host.catalog();
    assert_eq!(catalog.previous, None);
    assert_eq!(catalog.audience, ["https://vault.example/v/acme/"]);
    let trust = home.vault.trust().unwrap().unwrap();
    assert_eq!(
        (catalog.root_version, catalog.root_sha256),
        (1, *trust.chain().newest().payload_sha256())
    );
    assert!(host.sync(&home.vault, home.now()).is_none());

    let one = home.add("one", "body");
    let two = home.add("two", "body");
    let plan = host.sync(&home.vault, home.now()).unwrap();
    assert_eq!(
        (
            plan.release,
            plan.added.len(),
            plan.changed.len(),
            plan.removed.len()
        ),
        (2, 2, 0, 0)
    );
    let catalog = host.catalog();
    let named: Vec<_> = catalog
        .skills
        .iter()
        .map(|entry| (entry.name.as_str(), entry.version, entry.bundle_hash))
        .collect();
    assert_eq!(named, [("one", 1, one.bundle), ("two", 1, two.bundle)]);
    assert_eq!(
        catalog.previous.unwrap().payload_sha256,
        first.payload_sha256
    );
    assert_eq!(
        (catalog.expires_at.unix() - catalog.issued_at.unix()) / DAY,
        90
    );
    let entries = index::parse_object(
        &host.objects[&catalog.index[0].bundle_hash],
        home.vault.id(),
    )
    .unwrap();
    assert_eq!(entries[0].description, "Does the work of one in a test.");

    // If nothing changed, nothing is signed, however often a sync runs.
    for _ in 0..3 {
        assert!(host.sync(&home.vault, home.now()).is_none());
    }
    // If one skill changed, only its bundle and the index are new.
    let uploads = host.uploads;
    home.add("one", "other");
    let plan = host.sync(&home.vault, home.now()).unwrap();
    assert_eq!(
        (plan.release, plan.added.len(), plan.changed.len()),
        (3, 0, 1)
    );
    assert_eq!(host.uploads - uploads, 2);
    assert_eq!(
        plan.objects.iter().filter(|object| !object.known).count(),
        2
    );
    // A skill removed and added again with the same content: a removal, then a higher version.
    home.remove("two", None);
    let plan = host.sync(&home.vault, home.now()).unwrap();
    assert_eq!(plan.removed, [support::name("two")]);
    assert!(
        host.catalog().withdrawn.is_empty(),
        "a plain removal withdraws nothing"
    );
    home.add("two", "body");
    host.sync(&home.vault, home.now()).unwrap();
    assert_eq!(
        host.catalog().skill(&support::name("two")).unwrap().version,
        2
    );
}

#[test]
fn a_release_is_renewed_when_it_runs_out_or_on_request() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("one", "body");
    host.sync(&home.vault, home.now()).unwrap();
    home.clock.advance(59 * DAY);
    assert!(host.sync(&home.vault, home.now()).is_none());
    home.clock.advance(2 * DAY);
    assert_eq!(host.sync(&home.vault, home.now()).unwrap().release, 2);
    assert!(host.sync(&home.vault, home.now()).is_none());
    // An expired current catalog does not prevent the next release.
    home.clock.advance(500 * DAY);
    assert_eq!(host.sync(&home.vault, home.now()).unwrap().release, 3);
    let request = PlanRequest {
        renew: true,
        days: 10,
        ..host.request()
    };
    let plan = planned(&home.vault, &request);
    assert_eq!(
        (
            plan.release,
            plan.objects.iter().filter(|object| !object.known).count()
        ),
        (4, 0)
    );
}

#[test]
fn an_interrupted_push_goes_on_with_the_same_bytes_and_no_number_is_used_twice() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("one", "body");
    host.sync(&home.vault, home.now()).unwrap();
    home.add("one", "two");
    let first = planned(&home.vault, &host.request());
    home.clock.advance(3_600);
    let again = planned(&home.vault, &host.request());
    assert_eq!((again.resumed, &again.catalog), (true, &first.catalog));
    // A skill changed before the push succeeded: another number, other bytes.
    home.add("one", "three");
    let next = planned(&home.vault, &host.request());
    assert_eq!((next.resumed, next.release), (false, 3));
    host.upload(&home.vault, &next);
    host.put(&next.catalog, home.now()).unwrap();
    // The response was lost, but the service serves the release, so it counts as published.
    assert!(
        matches!(host.plan(&home.vault).unwrap(), Plan::Unchanged(known) if known.release == 3)
    );
    let state = publish::state::read_state(&home.vault, BASE, &host.slug)
        .unwrap()
        .unwrap();
    assert_eq!(
        (
            state.published.unwrap().release,
            state.pending,
            state.highest_signed
        ),
        (3, None, 3)
    );
    // The very first push was lost and a skill changed: there must not be two catalogs with number
    // 1.
    let fresh = Host::new("other");
    let one = planned(&home.vault, &fresh.request());
    home.add("one", "four");
    let two = planned(&home.vault, &fresh.request());
    assert_eq!((one.release, two.release), (1, 2));
    assert_eq!(
        read(&two.catalog).previous.unwrap().payload_sha256,
        one.payload_sha256
    );
}

#[test]
fn a_host_that_shows_an_older_or_another_release_is_refused() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("one", "body");
    host.sync(&home.vault, home.now()).unwrap();
    let old = host.current.clone();
    home.add("one", "two");
    host.sync(&home.vault, home.now()).unwrap();
    let newest = host.current.clone();
    let refused = |current: Option<Vec<u8>>| {
        let request = PlanRequest::new(BASE, &host.slug, current.as_deref());
        publish::plan_release(&home.vault, &request).unwrap_err()
    };
    assert!(matches!(
        refused(old),
        PlanError::RolledBack {
            current: 1,
            published: 2
        }
    ));
    assert!(matches!(
        refused(None),
        PlanError::RolledBack {
            current: 0,
            published: 2
        }
    ));
    let other = Home::new(2);
    let mut foreign = Host::new("acme");
    foreign.sync(&other.vault, other.now()).unwrap();
    assert!(matches!(
        refused(foreign.current.clone()),
        PlanError::OtherVault
    ));
    let mut elsewhere = Host::new("elsewhere");
    elsewhere.sync(&home.vault, home.now()).unwrap();
    assert!(matches!(
        refused(elsewhere.current.clone()),
        PlanError::NotOurs(_)
    ));
    assert!(matches!(
        refused(Some(b"{}".to_vec())),
        PlanError::Catalog(_)
    ));
    let mut changed = newest.unwrap();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    assert!(matches!(refused(Some(changed)), PlanError::Catalog(_)));
}

/// Two machines with the same vault and key.
fn twins() -> (Home, Home) {
    let one = Home::new(1);
    one.add("common", "body");
    let two = one.copy();
    (one, two)
}

#[test]
fn what_another_library_published_stops_the_sync_until_it_is_adopted() {
    let (one, two) = twins();
    let mut host = Host::new("acme");
    host.sync(&one.vault, one.now()).unwrap();
    // A copy with the same content recognises the release as its own.
    assert!(host.sync(&two.vault, two.now()).is_none());
    two.add("theirs", "body");
    two.add("common", "from two");
    host.sync(&two.vault, two.now()).unwrap();
    one.add("ours", "body");
    let before = support::durable(&one.vault);
    let refused = host.plan(&one.vault).unwrap_err();
    let PlanError::Diverged(difference) = refused else {
        panic!("{refused}")
    };
    assert_eq!(difference.theirs, [support::name("theirs")]);
    assert_eq!(difference.ours, [support::name("ours")]);
    assert_eq!(difference.differing, [support::name("common")]);
    assert_eq!(support::durable(&one.vault), before, "nothing was signed");

    let request = PlanRequest {
        on_divergence: OnDivergence::Adopt,
        ..host.request()
    };
    let Plan::TakeOver(taken) = publish::plan_release(&one.vault, &request).unwrap() else {
        panic!()
    };
    let entries = &taken.skills;
    assert_eq!(entries.len(), 2);
    // If a bundle is missing or wrong, nothing is adopted.
    let wrong = |_: &Digest| Some(b"{}".to_vec());
    let own = adopt::Exceptions {
        strict: true,
        allow: Vec::new(),
        reason: None,
    };
    assert!(adopt::adopt_skills(&one.vault, entries, &own, &wrong).is_err());
    assert!(adopt::adopt_skills(&one.vault, entries, &own, &|_| None).is_err());
    assert_eq!(one.listed()["common"], 1);
    adopt::take_over(&one.vault, &taken, &own, &|hash| {
        host.objects.get(hash).cloned()
    })
    .unwrap();
    let plan = host.sync(&one.vault, one.now()).unwrap();
    assert_eq!(
        (
            plan.release,
            plan.added.len(),
            plan.changed.len(),
            plan.removed.len()
        ),
        (3, 1, 0, 0)
    );
    assert_eq!(
        one.listed().into_iter().collect::<Vec<_>>(),
        [
            ("common".into(), 2),
            ("ours".into(), 1),
            ("theirs".into(), 1)
        ]
    );
    assert!(
        vault_library::integrity::verify_all_installed(&one.vault)
            .unwrap()
            .is_clean()
    );
}

#[test]
fn replacing_what_another_library_published_never_lets_a_version_fall() {
    let (one, two) = twins();
    let mut host = Host::new("acme");
    host.sync(&one.vault, one.now()).unwrap();
    assert!(host.sync(&two.vault, two.now()).is_none());
    for body in ["a", "b", "c"] {
        two.add("common", body);
    }
    two.add("theirs", "body");
    host.sync(&two.vault, two.now()).unwrap();
    assert_eq!(
        host.catalog()
            .skill(&support::name("common"))
            .unwrap()
            .version,
        4
    );
    let plan = host
        .sync_as(&one.vault, one.now(), OnDivergence::Replace)
        .unwrap();
    assert_eq!(plan.removed, [support::name("theirs")]);
    assert_eq!(
        host.catalog()
            .skill(&support::name("common"))
            .unwrap()
            .version,
        5
    );
    assert_eq!(host.catalog().release, 3);
    let text = std::fs::read_to_string(one.path("vault/skills/common/SKILL.md")).unwrap();
    assert!(text.contains("body"));
}

#[test]
fn policy_and_profiles_are_part_of_the_release() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("plain", "body");
    let folder = home.source("for-codex", "x", &[]);
    let request = Options {
        agents: vec!["codex".parse().unwrap()],
        ..Options::default()
    };
    add_folder(&home.vault, &folder, &request).unwrap();
    host.sync(&home.vault, home.now()).unwrap();
    // A manifest names an agent, so there is a profile for it, with the skills for this agent and
    // those for all agents.
    let catalog = host.catalog();
    assert_eq!(catalog.profiles.len(), 1);
    assert_eq!(catalog.policy, None);
    let profile = Profile::parse(&host.objects[&catalog.profiles[0].bundle_hash]).unwrap();
    assert_eq!((profile.agent.as_str(), profile.skills.len()), ("codex", 2));

    let root = home.path("vault");
    std::fs::write(
        root.join("policy.toml"),
        "[profiles.all]\ngroups = [\"*\"]\n[groups.g]\nskills = [\"*\"]\n",
    )
    .unwrap();
    std::fs::write(
        root.join("profiles.toml"),
        "[[profile]]\nname = \"work\"\nagent = \"claude-code\"\n",
    )
    .unwrap();
    assert!(host.sync(&home.vault, home.now()).is_none(), "not approved");
    support::approve_all(&home.vault).unwrap();
    host.sync(&home.vault, home.now()).unwrap();
    let catalog = host.catalog();
    assert!(host.objects.contains_key(&catalog.policy.unwrap().sha256));
    assert_eq!(catalog.profiles[0].name, "work");
    let profile = Profile::parse(&host.objects[&catalog.profiles[0].bundle_hash]).unwrap();
    assert_eq!(profile.skills.len(), 1);
    assert!(host.sync(&home.vault, home.now()).is_none());
    let before = support::durable(&home.vault);
    for (file, text) in [
        ("policy.toml", "[profiles.all]\ngroups = [\"nobody\"]\n"),
        ("profiles.toml", "[[profile]]\nnome = 1\n"),
    ] {
        let good = std::fs::read(root.join(file)).unwrap();
        std::fs::write(root.join(file), text).unwrap();
        assert!(support::approve_all(&home.vault).is_err(), "{file}");
        assert!(host.sync(&home.vault, home.now()).is_none(), "{file}");
        // Even where such a file was approved, nothing is published by it.
        let id = home.vault.id();
        let approved = home.path(&format!("config/vaults/{id}/approved/{file}"));
        std::fs::write(&approved, text).unwrap();
        let refused = host.plan(&home.vault);
        assert!(
            matches!(refused, Err(PlanError::Policy(_) | PlanError::Profiles(_))),
            "{refused:?}"
        );
        std::fs::write(approved, &good).unwrap();
        std::fs::write(root.join(file), good).unwrap();
    }
    assert_eq!(support::durable(&home.vault), before);
}

#[test]
fn a_release_names_the_variants_of_each_agent_and_machines_install_them() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("greet", "body");
    std::fs::write(
        home.path("vault/profiles.toml"),
        "[[profile]]\nname = \"codex\"\nagent = \"codex\"\n[[profile]]\nname = \"cursor\"\nagent = \"cursor\"\n",
    )
    .unwrap();
    support::approve_all(&home.vault).unwrap();
    host.sync(&home.vault, home.now()).unwrap();
    let text = b"---\nagents: [codex]\n---\nFor Codex.\n";
    let greet = support::name("greet");
    transforms::add_transform(&home.vault, &greet, support::name("rules"), text).unwrap();
    let plan = host.sync(&home.vault, home.now()).unwrap();
    assert!(plan.changed.is_empty(), "the skill itself is as it was");
    assert!(host.sync(&home.vault, home.now()).is_none());
    let catalog = host.catalog();
    let plain = catalog.skills[0].bundle_hash;
    let bundles: Vec<_> = catalog
        .profiles
        .iter()
        .map(|entry| {
            let profile = Profile::parse(&host.objects[&entry.bundle_hash]).unwrap();
            profile.skills[0].bundle_hash
        })
        .collect();
    assert!(bundles[0] != plain && bundles[1] == plain);
    assert!(host.objects.contains_key(&bundles[0]));
    let file = home.path("vault/transforms/greet/rules.md");
    std::fs::write(&file, "broken").unwrap();
    assert!(support::approve_all(&home.vault).is_err());
    assert!(host.sync(&home.vault, home.now()).is_none(), "not approved");
    // A transform that can no longer be applied stops the release, so that no variant is silently
    // left out.
    let id = home.vault.id();
    let approved = format!("config/vaults/{id}/approved/transforms/greet/rules.md");
    std::fs::write(home.path(&approved), "broken").unwrap();
    let refused = host.plan(&home.vault).unwrap_err().to_string();
    assert!(
        refused.contains("greet") && refused.contains("codex"),
        "{refused}"
    );
}

/// The profile of this agent in the host's current release.
fn published_for(host: &Host, agent: &str) -> Option<Profile> {
    let catalog = host.catalog();
    let mut entries = catalog.profiles.iter();
    let entry = entries.find(|entry| entry.agent.as_str() == agent)?;
    Some(Profile::parse(&host.objects[&entry.bundle_hash]).unwrap())
}

#[test]
fn a_transform_is_published_for_its_agents_without_further_settings() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("greet", "body");
    home.add("plain", "body");
    host.sync(&home.vault, home.now()).unwrap();
    assert!(host.catalog().profiles.is_empty());
    let greet = support::name("greet");
    let add = |name: &str, text: &[u8]| {
        transforms::add_transform(&home.vault, &greet, support::name(name), text).unwrap();
    };
    add("rules", b"---\nagents: [codex]\n---\nFor Codex.\n");
    host.sync(&home.vault, home.now()).unwrap();
    let catalog = host.catalog();
    assert_eq!(catalog.profiles.len(), 1);
    let codex = published_for(&host, "codex").unwrap();
    let plain = |name: &str| catalog.skill(&support::name(name)).unwrap().bundle_hash;
    let bundle = |profile: &Profile, skill: usize| profile.skills[skill].bundle_hash;
    assert!(bundle(&codex, 0) != plain("greet") && bundle(&codex, 1) == plain("plain"));

    // A file that names another agent, and gives its profile the name of this one.
    let file = "[[profile]]\nname = \"codex\"\nagent = \"cursor\"\nexclude_tags = [\"x\"]\n";
    std::fs::write(home.path("vault/profiles.toml"), file).unwrap();
    support::approve_all(&home.vault).unwrap();
    host.sync(&home.vault, home.now()).unwrap();
    let names = |host: &Host| -> Vec<(String, String)> {
        let profiles = host.catalog().profiles.into_iter();
        profiles.map(|it| (it.name, it.agent.to_string())).collect()
    };
    let pair = |name: &str, agent: &str| (name.to_owned(), agent.to_owned());
    assert_eq!(
        names(&host),
        [pair("codex", "cursor"), pair("codex+", "codex")]
    );
    assert_eq!(published_for(&host, "codex").unwrap().skills, codex.skills);

    // A transform that names no agent is for each agent with a profile, and one profile stands for
    // all other agents.
    add("all", b"---\n{}\n---\nFor everybody.\n");
    host.sync(&home.vault, home.now()).unwrap();
    assert_eq!(host.catalog().profiles.len(), 3);
    let mut variants = BTreeSet::new();
    for agent in ["any-agent", "codex", "cursor"] {
        let profile = published_for(&host, agent).unwrap();
        assert_ne!(bundle(&profile, 0), plain("greet"), "{agent}");
        variants.insert(bundle(&profile, 0));
    }
    assert_eq!(variants.len(), 3, "each is signed for its agent");
    assert!(host.sync(&home.vault, home.now()).is_none());
}

#[test]
fn only_variants_that_a_profile_names_are_rendered_and_uploaded() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    let text = "---\nname: greet\ndescription: Greets.\nagents: [codex]\ntags: [x]\n---\nBody.\n";
    support::write(&home.path("sources/greet/SKILL.md"), text);
    home.add_folder(&home.path("sources/greet"));
    host.sync(&home.vault, home.now()).unwrap();
    let greet = support::name("greet");
    let transform = b"---\n{}\n---\nFor everybody.\n";
    transforms::add_transform(&home.vault, &greet, support::name("all"), transform).unwrap();
    let before: BTreeSet<_> = host.objects.keys().copied().collect();
    host.sync(&home.vault, home.now()).unwrap();
    // The skill is for one agent, so the others get no profile, and no variant.
    let codex = published_for(&host, "codex").unwrap();
    assert_eq!(host.catalog().profiles.len(), 1);
    let catalog = host.catalog();
    assert_ne!(codex.skills[0].bundle_hash, catalog.skills[0].bundle_hash);
    let named = [
        codex.skills[0].bundle_hash,
        catalog.profiles[0].bundle_hash,
        catalog.index[0].bundle_hash,
    ];
    let new = host.objects.keys().filter(|hash| !before.contains(hash));
    assert!(new.clone().count() > 0);
    for hash in new {
        assert!(named.contains(hash), "{hash} is named by nothing");
    }

    // A profile that leaves the skill out needs no variant of it either.
    let file = "[[profile]]\nname = \"codex\"\nagent = \"codex\"\nexclude_tags = [\"x\"]\n";
    std::fs::write(home.path("vault/profiles.toml"), file).unwrap();
    support::approve_all(&home.vault).unwrap();
    let plan = host.sync(&home.vault, home.now()).unwrap();
    assert!(published_for(&host, "codex").unwrap().skills.is_empty());
    let variant = codex.skills[0].bundle_hash;
    assert!(plan.objects.iter().all(|object| object.sha256 != variant));
}

#[test]
fn a_variant_with_the_bytes_of_the_skill_is_the_skill() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    let text = "---\nname: greet\ndescription: \"About greet.\"\n---\nBody.\n";
    support::write(&home.path("sources/greet/SKILL.md"), text);
    home.add_folder(&home.path("sources/greet"));
    let transform = b"---\nagents: [codex]\nset: {description: About greet.}\n---\n";
    let greet = support::name("greet");
    transforms::add_transform(&home.vault, &greet, support::name("same"), transform).unwrap();
    host.sync(&home.vault, home.now()).unwrap();
    let codex = published_for(&host, "codex").unwrap();
    let plain = host.catalog().skills[0].bundle_hash;
    assert_eq!(codex.skills[0].bundle_hash, plain);
}

#[test]
fn a_transform_that_cannot_be_read_stops_a_release_without_profiles_too() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("greet", "body");
    host.sync(&home.vault, home.now()).unwrap();
    let greet = support::name("greet");
    let text = b"---\nagents: [codex]\n---\nFor Codex.\n";
    transforms::add_transform(&home.vault, &greet, support::name("rules"), text).unwrap();
    let id = home.vault.id();
    let approved = format!("config/vaults/{id}/approved/transforms/greet/rules.md");
    std::fs::write(home.path(&approved), "broken").unwrap();
    let refused = host.plan(&home.vault).unwrap_err();
    assert!(
        matches!(&refused, PlanError::TransformUnread { skill, .. } if *skill == greet),
        "{refused}"
    );
}

#[test]
fn withdrawn_bytes_are_named_for_four_hundred_days() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    let bad = home.add("bad", "leaks");
    home.add("good", "body");
    host.sync(&home.vault, home.now()).unwrap();
    assert!(
        !remove::withdraw_version(&home.vault, &support::name("bad"), bad.bundle, "leaks").unwrap(),
        "still offered"
    );
    home.remove("bad", Some("leaks a key"));
    host.sync(&home.vault, home.now()).unwrap();
    let entry = host.catalog().withdrawn[0].clone();
    assert_eq!(
        (
            entry.bundle_hash,
            entry.since_release,
            entry.reason.as_str()
        ),
        (bad.bundle, 2, "leaks a key")
    );
    assert!(host.sync(&home.vault, home.now()).is_none());
    for _ in 0..5 {
        home.clock.advance(79 * DAY);
        host.sync(&home.vault, home.now()).unwrap();
        assert_eq!(host.catalog().withdrawn, std::slice::from_ref(&entry));
    }
    home.clock.advance(65 * DAY);
    host.sync(&home.vault, home.now()).unwrap();
    assert!(host.catalog().withdrawn.is_empty());
}

#[test]
fn a_rollback_is_new_versions_over_old_bytes() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    home.add("changes", "old");
    home.add("stays", "same");
    home.add("goes", "away");
    host.sync(&home.vault, home.now()).unwrap();
    let old = host.current.clone().unwrap();
    home.add("changes", "new");
    home.add("later", "x");
    home.remove("goes", None);
    host.sync(&home.vault, home.now()).unwrap();
    remove::collect_unreferenced(&home.vault).unwrap();

    let request = PlanRequest::new(BASE, &host.slug, Some(&old));
    let plan = |release| adopt::plan_rollback(&home.vault, &request, release);
    // A rollback accepts only the requested release, whatever the service returns for it.
    assert!(matches!(
        plan(2),
        Err(AdoptError::OtherRelease { asked: 2, shown: 1 })
    ));
    let rollback = plan(1).unwrap();
    assert_eq!(
        rollback
            .readmit
            .iter()
            .map(|entry| entry.name.as_str())
            .collect::<Vec<_>>(),
        ["changes", "goes"]
    );
    assert_eq!(rollback.remove, [support::name("later")]);
    assert!(!adopt::is_stored(&home.vault, &rollback.readmit[0].bundle_hash).unwrap());
    let before = support::durable(&home.vault);
    let own = adopt::Exceptions {
        strict: true,
        allow: Vec::new(),
        reason: None,
    };
    assert!(adopt::roll_back(&home.vault, &rollback, &own, &|_| None).is_err());
    assert_eq!(support::durable(&home.vault), before);
    let report = adopt::roll_back(&home.vault, &rollback, &own, &|hash| {
        host.objects.get(hash).cloned()
    })
    .unwrap();
    assert_eq!(report.readmitted[0].admission, Admission::Updated);
    assert_eq!(report.readmitted[0].before, Some(2));
    assert_eq!(
        report.readmitted[1].version, 2,
        "a removed name goes on counting"
    );
    let text = std::fs::read_to_string(home.path("vault/skills/changes/SKILL.md")).unwrap();
    assert!(text.contains("old"));
    let plan = host.sync(&home.vault, home.now()).unwrap();
    assert_eq!(plan.release, 3);
    assert_eq!(
        home.listed().into_iter().collect::<Vec<_>>(),
        [
            ("changes".into(), 3),
            ("goes".into(), 2),
            ("stays".into(), 1)
        ]
    );
}

#[test]
fn large_files_travel_in_parts() {
    let home = Home::new(1);
    let mut host = Host::new("acme");
    let noise: Vec<u8> = (0..3_500_000_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[1])
        .collect();
    let folder = home.source("big", "x", &[("data/table.bin", &noise)]);
    home.add_folder(&folder);
    let plan = host.sync(&home.vault, home.now()).unwrap();
    assert_eq!(plan.objects.len(), 4, "bundle, two parts, index");
    let device = Home::new(2);
    let link = vault_library::subscribe::link_vault(&device.vault, BASE, &host.slug).unwrap();
    host.pull(
        &device.vault,
        &link,
        &vault_library::subscribe::Selection::default(),
    )
    .unwrap();
    let pulled = device
        .path("vault/links")
        .join(link.id().as_str())
        .join("skills/big/data/table.bin");
    assert_eq!(std::fs::read(pulled).unwrap(), noise);
    assert!(
        vault_library::integrity::verify_all_installed(&device.vault)
            .unwrap()
            .is_clean()
    );
}

/// The owner has said at the service that this vault takes the place of what is published there.
#[test]
fn after_a_reset_of_the_pin_a_release_replaces_what_cannot_be_read() {
    let mut foreign = Host::new("acme");
    let other = Home::new(2);
    foreign.sync(&other.vault, other.now()).unwrap();
    let earlier = br#"{"public_key":"x","payloadType":"application/vnd.vault.catalog.v1+json"}"#;
    let damaged = b"{}".to_vec();
    for (current, word) in [
        (foreign.current.unwrap(), Ok::<_, &str>(())),
        (earlier.to_vec(), Ok(())),
        (damaged, Err("catalog_schema")),
    ] {
        let home = Home::new(1);
        home.add("one", "body");
        let slug = "acme".parse().unwrap();
        let strict = PlanRequest::new(BASE, &slug, Some(&current));
        let reset = PlanRequest {
            pin_is_reset: true,
            ..strict.clone()
        };
        let error = publish::plan_release(&home.vault, &strict).unwrap_err();
        assert_eq!(error.is_another_vaults(), word.is_ok(), "{error}");
        assert!(publish::take_roots(&home.vault, &strict).is_err());
        if let Err(word) = word {
            match publish::plan_release(&home.vault, &reset) {
                Err(PlanError::Catalog(error)) => assert_eq!(error.error_code(), word),
                other => panic!("{other:?}"),
            }
            continue;
        }
        let plan = planned(&home.vault, &reset);
        // It still names the file that it replaces, so that two publishers can't both win.
        assert_eq!(plan.follows, Some(Digest::of(&current)));
        assert_eq!(publish::take_roots(&home.vault, &reset).unwrap(), None);
        let again = planned(&home.vault, &reset);
        assert_eq!(
            again.catalog, plan.catalog,
            "an interrupted push goes on with the same bytes"
        );
    }
}

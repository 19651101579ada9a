//! Tests of what each agent of a linked machine gets: the variants that the publisher made for it,
//! and not what its profile leaves out.

use std::fs;
use std::path::PathBuf;

use vault_format::hash::Digest;
use vault_format::name::AgentId;
use vault_library::admit::variants as transforms;
use vault_library::agents::{
    HiddenReason, ProfileSyncReport, SyncProfilesInput, VariantMaker, sync_profiles,
};
use vault_library::doctor::{self, DoctorInput};
use vault_library::subscribe::{self, AcceptOptions, LinkError, Selection, StagedBundles};
use vault_library::{agents::AgentView, integrity};
use vault_testing::assert_matches;

use crate::support::host::Host;
use crate::support::pair::Pair;
use crate::support::{Home, approve_all, file_names, name, nothing_dangles, write};

pub const CODEX: &str = ".agents/skills";
pub const CLAUDE: &str = ".claude/skills";

/// A publisher with these skills and a transform of `beta` for codex, and a machine with both agents
/// that has pulled nothing yet.
pub fn pair(skills: &[&str]) -> Pair {
    let mut pair = Pair::new(skills, "plain");
    transform(&pair.owner, "beta", "agents: [codex]", "For codex.");
    pair.publish();
    for mark in [".codex", ".claude"] {
        fs::create_dir_all(pair.device.path(mark)).unwrap();
    }
    pair
}

pub fn transform(owner: &Home, skill: &str, head: &str, text: &str) {
    let text = format!("---\n{head}\n---\n{text}\n");
    transforms::add_transform(&owner.vault, &name(skill), name("own"), text.as_bytes()).unwrap();
}

pub fn sync(home: &Home) -> ProfileSyncReport {
    let report = sync_profiles(&home.vault, &home.sync_input()).unwrap();
    nothing_dangles(&home.path(""));
    report
}

pub fn pull(pair: &Pair) -> subscribe::PullReport {
    let report = pair.pull_all();
    nothing_dangles(&pair.device.path(""));
    report
}

/// The names in an agent's folder.
pub fn names(pair: &Pair, folder: &str) -> Vec<String> {
    file_names(&pair.device.path(folder))
}

/// Whether an agent's skill is the variant.
pub fn is_variant(pair: &Pair, folder: &str, skill: &str) -> bool {
    let text = pair.device.read(&format!("{folder}/{skill}/SKILL.md"));
    text.contains("For codex.")
}

pub fn agent(id: &str) -> AgentId {
    id.parse().unwrap()
}

/// What the machine says that an agent sees.
pub fn view(home: &Home, id: &str) -> AgentView {
    let input = DoctorInput {
        machine: Some(home.sync_input().machine),
        skill: None,
        clean: false,
        repair: false,
        strict: true,
        is_set: &|_| true,
    };
    let report = doctor::examine_vault(&home.vault, &input).unwrap();
    let mut agents = report.agents.agents.into_iter();
    agents.find(|view| view.agent == agent(id)).unwrap()
}

pub fn profiles(home: &Home, text: &str) {
    write(&home.path("vault/profiles.toml"), text);
    approve_all(&home.vault).unwrap();
}

/// The bundle of the codex variant of `beta` in the host's release.
fn variant(host: &Host) -> Digest {
    let catalog = host.catalog();
    let mut entries = catalog.profiles.iter();
    let entry = entries.find(|entry| entry.agent == agent("codex")).unwrap();
    let profile = vault_policy::profile::Profile::parse(&host.objects[&entry.bundle_hash]).unwrap();
    let mut skills = profile.skills.iter();
    skills
        .find(|skill| skill.name == name("beta"))
        .unwrap()
        .bundle_hash
}

#[test]
fn each_agent_of_a_linked_machine_gets_its_own_bytes() {
    let mut pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    assert!(is_variant(&pair, CODEX, "beta") && !is_variant(&pair, CLAUDE, "beta"));
    assert_eq!(names(&pair, CODEX), ["beta", "gamma"]);
    assert_eq!(names(&pair, CLAUDE), ["beta", "gamma"]);
    let codex = view(&pair.device, "codex");
    assert_eq!(codex.variants.len(), 1);
    assert_eq!(codex.variants[0].by, VariantMaker::Publisher);
    assert!(view(&pair.device, "claude-code").variants.is_empty());
    assert!(pair.is_clean());
    // Nothing is new.
    let report = pull(&pair);
    assert_eq!((report.updated.len(), report.unchanged), (0, 2));
    assert!(!sync(&pair.device).restart_required);

    // A new version reaches both with the pull alone.
    pair.owner.add("beta", "second");
    pair.publish();
    pull(&pair);
    assert!(is_variant(&pair, CODEX, "beta") && !is_variant(&pair, CLAUDE, "beta"));
    for folder in [CODEX, CLAUDE] {
        assert!(
            pair.device
                .read(&format!("{folder}/beta/SKILL.md"))
                .contains("second")
        );
    }
    assert!(!sync(&pair.device).restart_required);

    // A selection for one agent is about which skills there are, not about their bytes.
    let selection = Selection {
        agent: Some(agent("codex")),
        ..Selection::default()
    };
    pair.pull(&selection).unwrap();
    sync(&pair.device);
    assert!(is_variant(&pair, CODEX, "beta") && !is_variant(&pair, CLAUDE, "beta"));
}

#[test]
fn an_agent_that_loses_its_variant_or_its_profile_gets_the_plain_skill() {
    let mut pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    let gone = variant(&pair.host);
    transforms::remove_transform(&pair.owner.vault, &name("beta"), &name("own")).unwrap();
    pair.publish();
    assert!(pair.host.catalog().profiles.is_empty());
    let report = pull(&pair);
    assert_eq!(report.updated, [name("beta")]);
    assert!(!is_variant(&pair, CODEX, "beta"), "before any sync");
    assert!(!pair.device.stored(&gone).exists());
    // The next pull comes before a sync.
    pair.owner.add("gamma", "second");
    pair.publish();
    pull(&pair);
    sync(&pair.device);
    assert_eq!(names(&pair, CODEX), ["beta", "gamma"]);
    assert!(
        pair.device
            .read(".agents/skills/gamma/SKILL.md")
            .contains("second")
    );
    assert!(pair.is_clean());
}

#[test]
fn what_a_profile_leaves_out_leaves_the_folder_of_its_agent_alone() {
    let mut pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    let tagged = "---\nname: ops\ndescription: About ops.\ntags: [ops]\n---\nplain\n";
    write(&pair.owner.path("sources/ops/SKILL.md"), tagged);
    pair.owner.add_folder(&pair.owner.path("sources/ops"));
    pair.publish();
    pull(&pair);
    sync(&pair.device);
    assert_eq!(names(&pair, CLAUDE), ["beta", "gamma", "ops"]);
    let rule = |agent: &str, tags: &str| {
        format!("[[profile]]\nname = \"{agent}\"\nagent = \"{agent}\"\n{tags}\n")
    };
    let text = rule("claude-code", "exclude_tags = [\"ops\"]") + &rule("codex", "");
    profiles(&pair.owner, &text);
    pair.publish();
    pull(&pair);
    sync(&pair.device);
    assert_eq!(names(&pair, CLAUDE), ["beta", "gamma"]);
    assert_eq!(names(&pair, CODEX), ["beta", "gamma", "ops"]);
    let hidden = view(&pair.device, "claude-code").hidden;
    assert_eq!(hidden.len(), 1);
    assert_eq!(
        (&hidden[0].skill, &hidden[0].reason),
        (&name("ops"), &HiddenReason::Published)
    );

    // An agent that loses everything loses its links too.
    let text = rule("claude-code", "include_tags = [\"none\"]") + &rule("codex", "");
    profiles(&pair.owner, &text);
    pair.publish();
    pull(&pair);
    assert!(names(&pair, CLAUDE).is_empty(), "before any sync");
    assert!(is_variant(&pair, CODEX, "beta"));
    sync(&pair.device);
    assert!(names(&pair, CLAUDE).is_empty());

    // An own file may only narrow: this rule selects what the publisher leaves out.
    let text = rule("claude-code", "") + &rule("codex", "exclude_tags = [\"ops\"]");
    profiles(&pair.device, &text);
    sync(&pair.device);
    assert!(names(&pair, CLAUDE).is_empty());
    assert_eq!(names(&pair, CODEX), ["beta", "gamma"]);
    assert!(is_variant(&pair, CODEX, "beta"));
}

#[test]
fn an_agent_that_is_linked_later_gets_its_variants_at_once() {
    let pair = pair(&["beta"]);
    fs::remove_dir(pair.device.path(".codex")).unwrap();
    pull(&pair);
    sync(&pair.device);
    fs::create_dir(pair.device.path(".codex")).unwrap();
    sync(&pair.device);
    assert!(is_variant(&pair, CODEX, "beta") && !is_variant(&pair, CLAUDE, "beta"));
    let report = pull(&pair);
    assert_eq!((report.updated.len(), report.unchanged), (0, 1));
}

#[test]
fn the_sets_forget_an_agent_that_is_gone() {
    let mut pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    let folders = |pair: &Pair| file_names(&pair.folder().join("current/agents"));
    assert_eq!(folders(&pair), ["claude-code", "codex"]);
    // It is still on the machine, so its link tree stays.
    let forget = SyncProfilesInput {
        forget: vec![agent("codex")],
        discover: false,
        ..pair.device.sync_input()
    };
    sync_profiles(&pair.device.vault, &forget).unwrap();
    assert_eq!(folders(&pair), ["claude-code", "codex"]);
    fs::remove_dir_all(pair.device.path(".codex")).unwrap();
    sync(&pair.device);
    assert_eq!(folders(&pair), ["claude-code"]);
    pair.owner.add("beta", "second");
    pair.publish();
    pull(&pair);
    assert_eq!(folders(&pair), ["claude-code"]);
    // Nothing goes on changing, and the agent gets its variant again when it comes back.
    let before = sync(&pair.device);
    assert!(!before.restart_required);
    fs::create_dir(pair.device.path(".codex")).unwrap();
    sync(&pair.device);
    assert!(is_variant(&pair, CODEX, "beta"));
    assert!(pair.is_clean());
}

#[test]
fn an_own_transform_is_applied_to_the_publishers_variant() {
    let mut pair = pair(&["beta"]);
    pull(&pair);
    sync(&pair.device);
    transform(&pair.device, "beta", "agents: [codex]", "On this machine.");
    sync(&pair.device);
    let text = pair.device.read(".agents/skills/beta/SKILL.md");
    assert!(
        text.contains("For codex.") && text.contains("On this machine."),
        "{text}"
    );
    assert_eq!(
        view(&pair.device, "codex").variants[0].by,
        VariantMaker::Transform
    );
    transform(&pair.owner, "beta", "agents: [codex]", "For codex. Second.");
    pair.publish();
    pull(&pair);
    sync(&pair.device);
    let text = pair.device.read(".agents/skills/beta/SKILL.md");
    assert!(
        text.contains("Second.") && text.contains("On this machine."),
        "{text}"
    );
    assert!(pair.is_clean());
}

#[test]
fn a_release_with_a_missing_or_bad_variant_installs_nothing() {
    let mut pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    let before = crate::support::durable(&pair.device.vault);
    pair.owner.add("beta", "second");
    pair.owner.add("gamma", "second");
    pair.publish();
    let hash = variant(&pair.host);
    let good = pair.host.objects[&hash].clone();
    let mut changed = good.clone();
    *changed.last_mut().unwrap() ^= 1;
    for bad in [None, Some(changed)] {
        match bad {
            Some(bytes) => pair.host.objects.insert(hash, bytes),
            None => pair.host.objects.remove(&hash),
        };
        let refused = pair.pull(&Selection::default()).unwrap_err();
        let text = refused.to_string();
        assert_matches!(refused, LinkError::Variant { agent, .. } if agent.as_str() == "codex");
        assert!(text.contains("codex") && text.contains("beta"), "{text}");
        assert_eq!(crate::support::durable(&pair.device.vault), before);
    }
    // The profile itself is missing or was exchanged.
    pair.host.objects.insert(hash, good);
    let catalog = pair.host.catalog();
    let entry = &catalog.profiles[0];
    let profile = pair.host.objects.remove(&entry.bundle_hash).unwrap();
    let refused = pair.pull(&Selection::default()).unwrap_err();
    assert_matches!(refused, LinkError::Profile(_));
    assert_eq!(crate::support::durable(&pair.device.vault), before);
    pair.host.objects.insert(entry.bundle_hash, profile);
    pull(&pair);
    assert!(
        pair.device
            .read(".agents/skills/beta/SKILL.md")
            .contains("second")
    );
}

#[test]
fn withdrawn_skills_go_with_their_variants_while_the_service_gives_out_nothing() {
    let mut pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    let (plain, rendered) = (
        pair.host
            .catalog()
            .skill(&name("beta"))
            .unwrap()
            .bundle_hash,
        variant(&pair.host),
    );
    pair.owner.remove("beta", Some("leaks"));
    transform(&pair.owner, "gamma", "agents: [codex]", "For codex.");
    pair.publish();
    pair.host.objects.clear();
    let report = subscribe::withdraw_first(&pair.device.vault, &pair.accept())
        .unwrap()
        .unwrap();
    assert_eq!(report.withdrawn.len(), 1);
    nothing_dangles(&pair.device.path(""));
    for bundle in [plain, rendered] {
        assert!(!pair.device.stored(&bundle).exists(), "{bundle}");
    }
    for folder in [CODEX, CLAUDE] {
        assert_eq!(names(&pair, folder), ["gamma"]);
    }
    assert_matches!(pair.pull(&Selection::default()), Err(LinkError::Profile(_)));
    let again = subscribe::withdraw_first(&pair.device.vault, &pair.accept()).unwrap();
    assert!(again.is_none());
    assert!(pair.is_clean());
}

#[test]
fn a_variant_passes_for_no_other_skill_or_agent() {
    let pair = pair(&["beta"]);
    pull(&pair);
    sync(&pair.device);
    let listing = vault_library::shelf::list_installed(&pair.device.vault).unwrap();
    assert_eq!(listing.skills.len(), 1);
    let folder = pair.folder().join("current");
    let files = |bundle: &Digest| {
        PathBuf::from("store")
            .join(bundle.to_string())
            .join("files")
    };
    let plain = pair.host.catalog().skills[0].bundle_hash;
    let relink = |path: &str, up: &str, bundle: &Digest| {
        let link = folder.join(path);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(PathBuf::from(up).join(files(bundle)), link).unwrap();
    };
    let damaged = || {
        let report = integrity::verify_all_installed(&pair.device.vault).unwrap();
        let count = |checks: &[integrity::SkillCheck]| {
            checks.iter().filter(|check| check.damage.is_some()).count()
        };
        (count(&report.skills), count(&report.variants))
    };
    assert_eq!(damaged(), (0, 0));
    let up = "../../../../..";
    relink("skills/beta", up, &variant(&pair.host));
    assert_eq!(damaged(), (1, 0));
    relink("skills/beta", up, &plain);
    relink("agents/codex/beta", "../../../../../..", &plain);
    assert_eq!(damaged(), (0, 1));
    sync(&pair.device);
    assert!(
        names(&pair, CODEX).is_empty(),
        "the plain skill was not meant for codex"
    );
    assert_eq!(names(&pair, CLAUDE), ["beta"]);
    // The next pull heals it.
    pull(&pair);
    sync(&pair.device);
    assert!(is_variant(&pair, CODEX, "beta"));
    assert_eq!(damaged(), (0, 0));
}

#[test]
fn a_bundle_of_another_agent_is_no_variant() {
    let pair = pair(&["beta"]);
    let offer = pair.accept();
    let object = |hash: &Digest| pair.host.objects.get(hash).cloned();
    let chosen = offer
        .resolve_selection(&Selection::default(), &object)
        .unwrap();
    let [skill] = &chosen.variants[..] else {
        panic!("{:?}", chosen.variants);
    };
    let bytes = object(&skill.bundle_hash).unwrap();
    let mut other = skill.clone();
    other.agent = Some(agent("cursor"));
    let mut staged = StagedBundles::new(&pair.device.vault).unwrap();
    let refused = staged
        .add_bundle(&offer, &other, &bytes, &object)
        .unwrap_err();
    assert!(refused.to_string().contains("cursor"), "{refused}");
    let mut staged = StagedBundles::new(&pair.device.vault).unwrap();
    staged.add_bundle(&offer, skill, &bytes, &object).unwrap();
}

/// Vector n294: a release whose profile names a variant by a key that its root versions revoke.
#[test]
fn the_vector_of_a_variant_by_a_revoked_key_installs_nothing() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/roots");
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let mut file = json("releases.json")["z-prof"].clone();
    file["roots"] = json("chain-a4.json");
    let device = Home::new(2);
    device.clock.set("2026-11-29T00:00:00Z".parse().unwrap());
    let slug = "acme".parse().unwrap();
    let link = subscribe::link_vault(&device.vault, "https://vault.example", &slug).unwrap();
    let bytes = file.to_string().into_bytes();
    let offer = link
        .accept_catalog(&device.vault, &bytes, &AcceptOptions::default())
        .unwrap();
    let object = |hash: &Digest| {
        let kinds = ["bundle", "profile", "index"].into_iter();
        let mut files = kinds.map(|kind| folder.join(format!("{kind}-{hash}.json")));
        files.find_map(|file| fs::read(file).ok())
    };
    let chosen = offer
        .resolve_selection(&Selection::default(), &object)
        .unwrap();
    let mut staged = StagedBundles::new(&device.vault).unwrap();
    let [plain] = &chosen.skills[..] else {
        panic!("{:?}", chosen.skills);
    };
    staged
        .add_bundle(&offer, plain, &object(&plain.bundle_hash).unwrap(), &object)
        .unwrap();
    let [variant] = &chosen.variants[..] else {
        panic!("{:?}", chosen.variants);
    };
    let bytes = object(&variant.bundle_hash).unwrap();
    let refused = staged
        .add_bundle(&offer, variant, &bytes, &object)
        .unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("claude-code") && text.contains("hello"),
        "{text}"
    );
    let LinkError::Variant { cause, .. } = refused else {
        panic!("{text}");
    };
    let word = match *cause {
        LinkError::Bundle { reason, .. } => reason.error_code(),
        other => panic!("{other}"),
    };
    assert_eq!(word, "catalog_signer");
    // Without the variant nothing of the release is installed.
    let selection = Selection::default();
    let refused = subscribe::install_selection(&device.vault, &offer, &selection, &chosen, staged);
    assert_matches!(refused, Err(LinkError::Variant { .. }));
}

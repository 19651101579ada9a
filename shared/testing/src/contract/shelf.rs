//! The clauses (rules, one test each) for [`Shelf`], a store of skills.

use crate::assert_matches;
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use vault_format::draft::{Draft, Request, Source, Submitter};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_format::name::SkillName;
use vault_gate::{Outcome, RawFile};

use vault_shelf::{
    Change, DriftState, Entry, Loaded, Shelf, ShelfError, Snapshot, Submitted, Writes,
};

/// A fresh, empty shelf, the owner's access to it, and what keeps it alive. [`Shelf::write_mode`]
/// decides whether the clauses expect signed changes or drafts. A shelf whose library is on another
/// server accepts no change, so it cannot be tested here.
pub struct ShelfFixture {
    /// The shelf under test.
    pub shelf: Arc<dyn Shelf>,
    /// Makes changes to the shelf as its owner does.
    pub hand: Arc<dyn Hand>,
    /// Dropped after the clause: for example a folder or a database.
    pub keep: Box<dyn Any + Send + Sync>,
}

/// Changes of a shelf by its owner, or of its storage, without a call of the port.
#[async_trait]
pub trait Hand: Send + Sync {
    /// Puts a skill on the shelf in place of one with its name. `source` is its recorded source.
    async fn put(&self, files: Vec<RawFile>, source: &str);
    /// Puts several skills on the shelf, in one step if the shelf supports that.
    async fn put_all(&self, skills: Vec<Vec<RawFile>>) {
        for skill in skills {
            self.put(skill, "local:folder").await;
        }
    }
    /// Removes a skill from the shelf.
    async fn remove(&self, name: &SkillName);
    /// Adds a skill as a linked vault has it. Returns false if the shelf supports no links.
    async fn link(&self, files: Vec<RawFile>) -> bool;
    /// Damages the stored bytes of a skill.
    async fn damage(&self, entry: &Entry);
    /// Sets the policy, which decides who sees what, from a text like `policy.toml`.
    async fn policy(&self, text: &str);
    /// Returns the waiting drafts, as an owner reads them.
    async fn drafts(&self) -> Vec<Draft>;
}

/// Returns the files of a skill: SKILL.md and one more.
pub fn skill(name: &str, body: &str) -> Vec<RawFile> {
    let document = format!(
        "---\nname: {name}\ndescription: Does the work of {name} for whoever asks.\ntags: [tried, {name}]\n---\n{body}\n"
    );
    vec![
        file("SKILL.md", document.into_bytes()),
        file("notes.txt", format!("notes on {body}\n").into_bytes()),
    ]
}

fn file(path: &str, bytes: Vec<u8>) -> RawFile {
    RawFile {
        path: path.to_owned(),
        mode: Mode::Plain,
        bytes,
    }
}

fn name(text: &str) -> SkillName {
    text.parse().expect("a name")
}

fn by(user: &str) -> Submitter {
    Submitter {
        user_id: user.to_owned(),
        client_id: Some("cli_1".to_owned()),
    }
}

fn take(files: Vec<RawFile>, replace: bool) -> Change {
    Change::Take {
        files,
        replace,
        check: false,
        hidden: false,
    }
}

fn checked(files: Vec<RawFile>, replace: bool) -> Change {
    Change::Take {
        files,
        replace,
        check: true,
        hidden: false,
    }
}

fn source() -> Source {
    Source {
        identifier: "github:acme/skills/code-review".parse().expect("a source"),
        reference: Some("main".to_owned()),
    }
}

impl ShelfFixture {
    async fn put(&self, name: &str, body: &str) -> Entry {
        self.hand.put(skill(name, body), "local:folder").await;
        self.entry(name).await
    }

    async fn snapshot(&self) -> Arc<Snapshot> {
        self.shelf.take_snapshot().await.expect("the shelf answers")
    }

    async fn entry(&self, text: &str) -> Entry {
        let snapshot = self.snapshot().await;
        snapshot.find(&name(text)).expect("it is there").clone()
    }

    async fn load(&self, entry: &Entry) -> Arc<Loaded> {
        self.shelf
            .load_skill(entry)
            .await
            .expect("a good skill loads")
    }

    async fn submit(&self, change: Change) -> Result<Submitted, ShelfError> {
        self.shelf.submit(&by("usr_1"), change).await
    }

    async fn done(&self, change: Change) -> Submitted {
        self.submit(change).await.expect("the change is good")
    }

    fn signs(&self) -> bool {
        match self.shelf.write_mode() {
            Writes::Signed => true,
            Writes::Drafted => false,
            Writes::Elsewhere => panic!("a shelf without changes cannot be tried"),
        }
    }

    /// Returns what is visible of the shelf: the skills with their bundles, and the number of
    /// drafts.
    async fn all(&self) -> (Vec<(String, u64, Digest)>, usize) {
        let snapshot = self.snapshot().await;
        let entries = snapshot.entries().iter();
        let seen = entries.map(|entry| {
            let hash = entry.texts.bundle_hash;
            (entry.name().to_string(), entry.version, hash)
        });
        (seen.collect(), self.hand.drafts().await.len())
    }
}

fn text(loaded: &Loaded, path: &str) -> String {
    let file = loaded.find_file(path).expect("the file is there");
    String::from_utf8(file.bytes.clone()).expect("text")
}

/// An empty shelf answers every call, with no skills.
pub async fn an_empty_shelf_has_no_skills(fixture: &ShelfFixture) {
    let snapshot = fixture.snapshot().await;
    assert!(snapshot.entries().is_empty());
    assert!(snapshot.policy.is_none() && snapshot.policy_sha256.is_none());
    assert!(snapshot.ranking().search("anything", 5).is_empty());
    assert_eq!(
        fixture.shelf.drift(&[], false).await.expect("an answer"),
        []
    );
    assert!(!fixture.shelf.owner_name().is_empty());
}

/// Skills are listed by name, in whatever order they were added, and are found by name.
pub async fn skills_are_listed_in_the_order_of_their_names(fixture: &ShelfFixture) {
    for skill in ["delta", "alpha", "charlie", "bravo-two", "bravo"] {
        fixture.put(skill, "one").await;
    }
    let snapshot = fixture.snapshot().await;
    let names: Vec<_> = snapshot
        .entries()
        .iter()
        .map(|entry| entry.name().as_str())
        .collect();
    assert_eq!(names, ["alpha", "bravo", "bravo-two", "charlie", "delta"]);
    for entry in snapshot.entries() {
        assert_eq!(snapshot.find(entry.name()), Some(entry));
    }
    assert_eq!(snapshot.find(&name("echo")), None);
}

/// The positions in a ranking are those of the entries of the snapshot.
pub async fn a_ranking_has_the_positions_of_the_entries(fixture: &ShelfFixture) {
    for skill in ["zebra", "alpha", "middle"] {
        fixture.put(skill, "one").await;
    }
    let snapshot = fixture.snapshot().await;
    for wanted in ["zebra", "alpha", "middle"] {
        let hits = snapshot.ranking().search(wanted, 1);
        let entry = &snapshot.entries()[hits[0].position];
        assert_eq!(entry.name().as_str(), wanted);
    }
    assert_eq!(snapshot.ranking().len(), 3);
}

/// An entry has the version, bundle hash, size and texts of the signed skill.
pub async fn an_entry_says_what_was_signed(fixture: &ShelfFixture) {
    let entry = fixture.put("alpha", "one").await;
    assert_eq!((entry.version, entry.is_linked()), (1, false));
    assert_eq!(entry.texts.tags, ["tried", "alpha"]);
    assert!(entry.texts.description.contains("the work of alpha"));
    assert!(entry.size > 0);
    let loaded = fixture.load(&entry).await;
    assert_eq!(loaded.bundle_hash, entry.texts.bundle_hash);
    assert_eq!(loaded.bundle.manifest.name, *entry.name());
    assert_eq!(loaded.bundle.manifest.version, entry.version);
    let again = fixture.put("alpha", "two").await;
    assert_eq!(again.version, 2);
    assert_ne!(again.texts.bundle_hash, entry.texts.bundle_hash);
}

/// A loaded skill is complete and verifiable: manifest, signature and key are enough to verify
/// every byte.
pub async fn a_loaded_skill_proves_itself(fixture: &ShelfFixture) {
    let entry = fixture.put("alpha", "one").await;
    let loaded = fixture.load(&entry).await;
    assert_eq!(text(&loaded, "notes.txt"), "notes on one\n");
    assert!(text(&loaded, "SKILL.md").ends_with("---\none\n"));
    assert!(loaded.find_file("other.txt").is_none());
    let envelope = Envelope::parse(loaded.bundle.signed.as_bytes()).expect("an envelope");
    assert_eq!(
        envelope.valid_signers(&[loaded.public_key]),
        [loaded.public_key]
    );
    let payload: Value = serde_json::from_slice(envelope.payload()).expect("signed JSON");
    let manifest = &loaded.bundle.manifest;
    assert_eq!(payload["name"], manifest.name.as_str());
    assert_eq!(payload["version"], manifest.version);
    let listed = payload["files"].as_array().expect("a list of files");
    assert_eq!(listed.len(), loaded.bundle.files.len());
    for (signed, file) in listed.iter().zip(&loaded.bundle.files) {
        assert_eq!(signed["path"], file.path.as_str());
        assert_eq!(signed["sha256"], Digest::of(&file.bytes).to_string());
    }
}

/// While nothing changes, the shelf returns the same snapshot, so that callers can cache what they
/// derive from it.
pub async fn an_unchanged_shelf_hands_out_the_same_snapshot(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    let first = fixture.snapshot().await;
    assert!(Arc::ptr_eq(&first, &fixture.snapshot().await));
    fixture.load(&first.entries()[0]).await;
    fixture.done(checked(skill("beta", "one"), false)).await;
    assert!(Arc::ptr_eq(&first, &fixture.snapshot().await));
    fixture.put("beta", "one").await;
    assert!(!Arc::ptr_eq(&first, &fixture.snapshot().await));
}

/// A snapshot does not change after it was taken.
pub async fn a_snapshot_never_changes(fixture: &ShelfFixture) {
    let first = fixture.put("alpha", "one").await;
    let snapshot = fixture.snapshot().await;
    fixture.put("alpha", "two").await;
    fixture.put("beta", "one").await;
    fixture.hand.remove(&name("alpha")).await;
    assert_eq!(snapshot.entries(), [first]);
    let (now, _) = fixture.all().await;
    assert_eq!(now.len(), 1);
    assert_eq!(now[0].0, "beta");
}

/// A skill of an older snapshot is loaded as it was, or reported as not found. It is never a newer
/// version.
pub async fn an_older_entry_is_never_something_newer(fixture: &ShelfFixture) {
    let old = fixture.put("alpha", "one").await;
    fixture.put("alpha", "two").await;
    for _ in 0..2 {
        match fixture.shelf.load_skill(&old).await {
            Ok(loaded) => {
                assert_eq!(text(&loaded, "notes.txt"), "notes on one\n");
                assert_eq!(loaded.bundle_hash, old.texts.bundle_hash);
            }
            Err(ShelfError::NotFound(_)) => {}
            Err(other) => panic!("an older entry is neither: {other:?}"),
        }
        fixture.hand.remove(&name("alpha")).await;
    }
}

/// A removed skill is not listed. If it is added again, it gets a higher version.
pub async fn a_removed_skill_is_gone(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    fixture.put("beta", "one").await;
    fixture.hand.remove(&name("alpha")).await;
    let snapshot = fixture.snapshot().await;
    assert!(snapshot.find(&name("alpha")).is_none());
    assert_eq!(snapshot.entries().len(), 1);
    let back = fixture.put("alpha", "two").await;
    assert!(back.version > 1, "versions never count backwards");
}

/// A skill whose stored bytes are not the signed ones gives an error, never content. Other skills
/// are not affected.
pub async fn a_damaged_skill_is_never_content(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    fixture.put("beta", "one").await;
    let entry = fixture.entry("alpha").await;
    fixture.hand.damage(&entry).await;
    let failed = fixture
        .shelf
        .load_skill(&entry)
        .await
        .expect_err("no content");
    assert_matches!(&failed, ShelfError::Damaged(failed, _) if failed == entry.name());
    fixture.load(&fixture.entry("beta").await).await;
}

/// An entry that the shelf never had is not loaded: one with another name, version or bundle.
pub async fn a_made_up_entry_loads_nothing(fixture: &ShelfFixture) {
    let good = fixture.put("alpha", "one").await;
    let other = fixture.put("beta", "one").await;
    let mut wrong_name = good.clone();
    wrong_name.texts.name = name("gamma");
    let mut swapped = good.clone();
    swapped.texts.bundle_hash = other.texts.bundle_hash;
    swapped.size = other.size;
    let mut unknown = good.clone();
    unknown.texts.bundle_hash = Digest::of(b"never seen");
    let mut later = good.clone();
    later.version += 1;
    // Try before the good entry is loaded, and again when the shelf may have cached it.
    for _ in 0..2 {
        for entry in [&wrong_name, &swapped, &unknown, &later] {
            let answer = fixture.shelf.load_skill(entry).await;
            assert_matches!(
                answer,
                Err(ShelfError::NotFound(_) | ShelfError::Damaged(..))
            );
        }
        fixture.load(&good).await;
        fixture.load(&other).await;
    }
}

/// The policy is the one that the owner wrote last, with the hash of its object form.
pub async fn a_policy_is_what_the_owner_wrote_last(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    let mut hashes = BTreeSet::new();
    for text in [
        "[profiles.all]\ngroups = [\"*\"]\n",
        "[profiles.none]\ngroups = []\n",
    ] {
        fixture.hand.policy(text).await;
        let snapshot = fixture.snapshot().await;
        let policy = snapshot.policy.as_ref().expect("a policy");
        assert_eq!(
            **policy,
            vault_policy::Policy::from_toml(text).expect("a policy")
        );
        let hash = snapshot.policy_sha256.expect("a hash");
        assert_eq!(hash, Digest::of(&policy.to_object()));
        hashes.insert(hash);
        assert_eq!(snapshot.entries().len(), 1);
    }
    assert_eq!(hashes.len(), 2);
}

/// A new skill is signed and listed at once, or becomes a draft that names its author and request
/// and changes nothing else.
pub async fn a_new_skill_is_signed_or_drafted(fixture: &ShelfFixture) {
    let before = fixture.all().await;
    let files = skill("alpha", "one");
    let submitted = fixture.done(take(files.clone(), false)).await;
    assert_eq!(submitted.gate_outcome(), Some(Outcome::Accepted));
    match submitted {
        Submitted::Signed {
            name: signed,
            version,
            bundle_hash,
            ..
        } if fixture.signs() => {
            let entry = fixture.entry("alpha").await;
            assert_eq!((&signed, version), (entry.name(), 1));
            assert_eq!(bundle_hash, entry.texts.bundle_hash);
            let loaded = fixture.load(&entry).await;
            assert_eq!(text(&loaded, "notes.txt"), "notes on one\n");
            let source = &loaded.bundle.manifest.provenance.identifier;
            assert_eq!(source.as_str(), "inline:usr_1");
        }
        Submitted::Drafted {
            draft, name: of, ..
        } if !fixture.signs() => {
            assert_eq!(fixture.all().await, (before.0, 1));
            let drafts = fixture.hand.drafts().await;
            assert_eq!(drafts[0].draft_id, draft);
            assert_eq!((&drafts[0].name, &of), (&name("alpha"), &name("alpha")));
            assert_eq!(drafts[0].submitted_by, by("usr_1"));
            assert_eq!(drafts[0].base_bundle_hash, None);
            let Request::Propose { files: kept } = &drafts[0].request else {
                panic!("a proposal: {:?}", drafts[0].request);
            };
            let kept: Vec<_> = kept.iter().map(|file| &file.bytes).collect();
            let given: Vec<_> = files.iter().map(|file| &file.bytes).collect();
            assert_eq!(kept, given);
        }
        other => panic!("neither signed nor drafted as the shelf says: {other:?}"),
    }
}

/// Submitting equal files changes nothing, whoever added them first, and whether or not the caller
/// may replace skills.
pub async fn equal_files_are_unchanged(fixture: &ShelfFixture) {
    let entry = fixture.put("alpha", "one").await;
    let before = fixture.all().await;
    for change in [
        take(skill("alpha", "one"), false),
        take(skill("alpha", "one"), true),
        checked(skill("alpha", "one"), false),
    ] {
        let submitted = fixture.done(change).await;
        let Submitted::Unchanged {
            name: same,
            version,
            bundle_hash,
        } = submitted
        else {
            panic!("it is unchanged: {submitted:?}");
        };
        assert_eq!((&same, version), (entry.name(), 1));
        assert_eq!(bundle_hash, entry.texts.bundle_hash);
        assert_eq!(fixture.all().await, before);
    }
}

/// Other files under an existing name require that the change may replace. They then become its
/// next version, or a draft based on the current one.
pub async fn other_files_need_leave_to_replace(fixture: &ShelfFixture) {
    let entry = fixture.put("alpha", "one").await;
    let before = fixture.all().await;
    let refused = fixture.submit(take(skill("alpha", "two"), false)).await;
    assert_matches!(refused, Err(ShelfError::NameTaken(_)));
    assert_eq!(fixture.all().await, before);
    let submitted = fixture.done(take(skill("alpha", "two"), true)).await;
    if fixture.signs() {
        assert_matches!(submitted, Submitted::Signed { version: 2, .. });
        let loaded = fixture.load(&fixture.entry("alpha").await).await;
        assert_eq!(text(&loaded, "notes.txt"), "notes on two\n");
    } else {
        assert_matches!(submitted, Submitted::Drafted { .. });
        assert_eq!(fixture.all().await, (before.0, 1));
        let drafts = fixture.hand.drafts().await;
        assert_eq!(drafts[0].base_bundle_hash, Some(entry.texts.bundle_hash));
    }
}

/// Submitted text does not replace a skill that was fetched from a source. On a shelf with drafts,
/// an owner may still decide to do so.
pub async fn a_fetched_name_is_not_taken_over(fixture: &ShelfFixture) {
    let from = "github:acme/skills/alpha";
    fixture.hand.put(skill("alpha", "one"), from).await;
    let before = fixture.all().await;
    let refused = fixture.submit(take(skill("alpha", "two"), false)).await;
    assert_matches!(refused, Err(ShelfError::NameTaken(_)));
    let replaced = fixture.submit(take(skill("alpha", "two"), true)).await;
    if fixture.signs() {
        assert_matches!(replaced, Err(ShelfError::NameTaken(_)));
        assert_eq!(fixture.all().await, before);
    } else {
        assert_matches!(replaced, Ok(Submitted::Drafted { .. }));
        assert_eq!(fixture.all().await.0, before.0);
    }
}

/// A check returns what the change would do and changes nothing.
pub async fn a_check_changes_nothing(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    let before = fixture.all().await;
    let fresh = fixture.done(checked(skill("beta", "one"), false)).await;
    assert!(matches!(&fresh, Submitted::WouldPass { name: would, .. } if *would == name("beta")));
    let newer = fixture.done(checked(skill("alpha", "two"), true)).await;
    assert!(matches!(newer, Submitted::WouldPass { .. }), "{newer:?}");
    let taken = fixture.submit(checked(skill("alpha", "two"), false)).await;
    assert!(matches!(taken, Err(ShelfError::NameTaken(_))), "{taken:?}");
    let bad = fixture
        .done(checked(vec![file("notes.txt", b"x".to_vec())], false))
        .await;
    assert_eq!(bad.gate_outcome(), Some(Outcome::Blocked));
    assert_eq!(fixture.all().await, before);
}

/// If the scan blocks a skill, the shelf returns all findings and changes nothing.
pub async fn what_the_gate_refuses_changes_nothing(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    let before = fixture.all().await;
    let mut bad_path = skill("beta", "one");
    bad_path.push(file("../escape.txt", b"x".to_vec()));
    let mut clash = skill("beta", "one");
    clash.push(file("NOTES.txt", b"x".to_vec()));
    let cases = [
        Vec::new(),
        vec![file("notes.txt", b"no document".to_vec())],
        vec![file("SKILL.md", b"no frontmatter".to_vec())],
        vec![file("SKILL.md", vec![0xff, 0xfe])],
        bad_path,
        clash,
    ];
    for files in cases {
        for change in [
            take(files.clone(), false),
            take(files.clone(), true),
            checked(files, true),
        ] {
            let submitted = fixture.done(change).await;
            assert_eq!(submitted.gate_outcome(), Some(Outcome::Blocked));
            assert_matches!(&submitted, Submitted::Refused { findings } if !findings.is_empty());
        }
    }
    assert_eq!(fixture.all().await, before);
}

/// A removal removes the skill, or becomes a draft based on the current version. An unknown name is
/// not found.
pub async fn a_removal_is_done_or_drafted(fixture: &ShelfFixture) {
    let entry = fixture.put("alpha", "one").await;
    fixture.put("beta", "one").await;
    let before = fixture.all().await;
    let unknown = fixture.submit(Change::Remove(name("gamma"))).await;
    assert_matches!(&unknown, Err(ShelfError::NotFound(gone)) if *gone == name("gamma"));
    assert_eq!(fixture.all().await, before);
    let submitted = fixture.done(Change::Remove(name("alpha"))).await;
    if fixture.signs() {
        assert_matches!(&submitted, Submitted::Removed { name: gone, .. } if *gone == name("alpha"));
        assert!(fixture.snapshot().await.find(&name("alpha")).is_none());
        let again = fixture.submit(Change::Remove(name("alpha"))).await;
        assert!(matches!(again, Err(ShelfError::NotFound(_))), "{again:?}");
    } else {
        assert_eq!(fixture.all().await, (before.0, 1));
        let drafts = fixture.hand.drafts().await;
        assert_eq!(drafts[0].request, Request::Remove);
        assert_eq!(drafts[0].base_bundle_hash, Some(entry.texts.bundle_hash));
    }
}

/// The shelf under test fetches nothing: a hosted one keeps a draft, any other rejects the request.
pub async fn nothing_is_fetched(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    let before = fixture.all().await;
    let fetch = Change::Fetch {
        source: source(),
        skill: None,
        agents: Vec::new(),
        hidden: false,
    };
    let fetched = fixture.submit(fetch).await;
    if fixture.signs() {
        assert_matches!(fetched, Err(ShelfError::SourceUnsupported(_)));
        assert_eq!(fixture.all().await, before);
    } else {
        assert_matches!(fetched, Ok(Submitted::Drafted { .. }));
        let drafts = fixture.hand.drafts().await;
        assert_eq!(drafts[0].name, name("code-review"));
        assert_eq!(drafts[0].request, Request::Install { source: source() });
        assert_eq!(fixture.all().await.0, before.0);
    }
    let updated = fixture.submit(Change::Update(name("alpha"))).await;
    assert_matches!(updated, Err(ShelfError::SourceUnsupported(_)));
    let unknown = fixture.submit(Change::Update(name("gamma"))).await;
    assert_matches!(unknown, Err(ShelfError::NotFound(_)));
}

/// A folder that does not exist changes nothing.
pub async fn a_folder_that_is_not_there_changes_nothing(fixture: &ShelfFixture) {
    let before = fixture.all().await;
    let refused = fixture
        .submit(Change::Folder {
            path: "/nowhere/at/all".to_owned(),
            identifier: "local:all".to_owned(),
            skill: None,
            agents: Vec::new(),
        })
        .await;
    assert_matches!(
        refused,
        Err(ShelfError::Source(_) | ShelfError::SourceUnsupported(_))
    );
    assert_eq!(fixture.all().await, before);
}

/// A skill of a linked vault is listed and loaded like any other, and cannot be changed here.
pub async fn linked_skills_are_read_and_not_changed(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    if !fixture.hand.link(skill("linked", "one")).await {
        return;
    }
    let entry = fixture.entry("linked").await;
    assert!(entry.is_linked() && !fixture.entry("alpha").await.is_linked());
    let loaded = fixture.load(&entry).await;
    assert_eq!(text(&loaded, "notes.txt"), "notes on one\n");
    let own = fixture.load(&fixture.entry("alpha").await).await;
    assert_ne!(loaded.public_key, own.public_key);
    let before = fixture.all().await;
    for change in [
        take(skill("linked", "two"), false),
        take(skill("linked", "two"), true),
        checked(skill("linked", "two"), true),
        Change::Remove(name("linked")),
        Change::Update(name("linked")),
    ] {
        let refused = fixture.submit(change).await;
        assert_matches!(refused, Err(ShelfError::NameTaken(_)));
        assert_eq!(fixture.all().await, before);
    }
}

/// A comparison with sources returns a result for each entry, in the order of the question.
pub async fn drift_answers_for_each_skill(fixture: &ShelfFixture) {
    fixture.put("alpha", "one").await;
    fixture
        .hand
        .put(skill("beta", "one"), "github:acme/beta")
        .await;
    let snapshot = fixture.snapshot().await;
    let asked = [&snapshot.entries()[1], &snapshot.entries()[0]];
    let drift = fixture.shelf.drift(&asked, true).await.expect("an answer");
    assert_eq!(drift.len(), 2);
    for (entry, drift) in asked.iter().zip(&drift) {
        assert_eq!(entry.name(), &drift.name);
        assert!(matches!(&drift.state, DriftState::Unchecked(why) if !why.is_empty()));
    }
}

/// Of many callers who submit different skills under one name at the same time, one succeeds on a
/// shelf that signs. On a shelf with drafts each is kept, up to the limit of one author.
pub async fn of_many_who_take_one_name_one_is_first(fixture: &ShelfFixture) {
    const WRITERS: usize = 8;
    let barrier = Arc::new(Barrier::new(WRITERS));
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        let (shelf, barrier) = (Arc::clone(&fixture.shelf), Arc::clone(&barrier));
        writers.spawn(async move {
            barrier.wait().await;
            let change = take(skill("alpha", &format!("by {n}")), false);
            shelf.submit(&by("usr_1"), change).await
        });
    }
    let (mut signed, mut drafted, mut taken) = (0, BTreeSet::new(), 0);
    while let Some(outcome) = writers.join_next().await {
        match outcome.expect("a writer ends") {
            Ok(Submitted::Signed { .. }) => signed += 1,
            Ok(Submitted::Drafted { draft, .. }) => assert!(drafted.insert(draft.to_string())),
            Err(ShelfError::NameTaken(_)) => taken += 1,
            other => panic!("no such outcome: {other:?}"),
        }
    }
    if fixture.signs() {
        assert_eq!((signed, drafted.len(), taken), (1, 0, WRITERS - 1));
        assert_eq!(fixture.all().await.0.len(), 1);
    } else {
        assert_eq!((signed, drafted.len(), taken), (0, WRITERS, 0));
        assert_eq!(fixture.all().await, (Vec::new(), WRITERS));
    }
}

/// Readers of a shelf that is changing see whole skills only, sorted, each once.
pub async fn readers_see_whole_skills_only(fixture: &ShelfFixture) {
    let skills = |body: &str| ["alpha", "beta"].map(|name| skill(name, body)).to_vec();
    fixture.hand.put_all(skills("zero")).await;
    let shelf = Arc::clone(&fixture.shelf);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let reader = tokio::spawn(async move {
        let mut read = 0;
        while read == 0 || !stopped.load(std::sync::atomic::Ordering::SeqCst) {
            let snapshot = shelf.take_snapshot().await.expect("the shelf answers");
            let names: Vec<_> = snapshot.entries().iter().map(Entry::name).collect();
            assert_eq!(names, [&name("alpha"), &name("beta")]);
            for entry in snapshot.entries() {
                let loaded = shelf.load_skill(entry).await.expect("a listed skill loads");
                assert_eq!(loaded.bundle_hash, entry.texts.bundle_hash);
                let body = text(&loaded, "notes.txt");
                assert!(text(&loaded, "SKILL.md").ends_with(&body["notes on ".len()..]));
            }
            read += 1;
        }
    });
    for n in 0..8 {
        fixture.hand.put_all(skills(&format!("number {n}"))).await;
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    reader.await.expect("the reader saw nothing else");
}

use vault_skill::keys::SecretKey;

use super::*;

fn new_row(folder: &Path) -> NewRow {
    let hash = Digest::of(b"bundle");
    let root = folder.join(hash.to_string());
    std::fs::create_dir_all(root.join("files")).unwrap();
    std::fs::write(root.join("manifest.json"), "{}").unwrap();
    std::fs::write(root.join("files/SKILL.md"), "text").unwrap();
    let store = DirHandle::new(folder).unwrap();
    let paths: Vec<_> = ["manifest.json", "files", "files/SKILL.md"]
        .map(str::to_owned)
        .into();
    let stats = paths
        .iter()
        .map(|path| store.stat(format!("{hash}/{path}").as_bytes()).unwrap())
        .collect();
    NewRow {
        hash,
        row: Row {
            name: "a-skill".parse().unwrap(),
            version: 3,
            signer: SecretKey::from_seed([1; 32]).public(),
            size: 99,
            parts: vec![(Digest::of(b"part"), 7)],
            agents: vec!["codex".parse().unwrap()],
            paths,
        },
        texts: Texts {
            description: "one\nline".to_owned(),
            ..Texts::default()
        },
        stats,
        sketch: sketch(b"word"),
    }
}

/// A sketch of a text that is long enough to compare.
fn sketch(word: &[u8]) -> Sketch {
    let words: Vec<Vec<u8>> = (0..300)
        .map(|number: u32| [word, number.to_string().as_bytes()].concat())
        .collect();
    Sketch::of([words.join(&b' ').as_slice()])
}

#[test]
fn sketches_come_back_until_their_bundles_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    let other = |word: &[u8], sketch| SketchedSkill {
        hash: Digest::of(word),
        name: String::from_utf8_lossy(word).into_owned(),
        sketch,
    };
    let mut index = Index::open(&path);
    index.note(std::slice::from_ref(&new), LATE);
    index.note_sketches(&[
        other(b"other", sketch(b"other")),
        other(b"short", Sketch::of([&b"two words"[..]])),
    ]);
    let hashes = [new.hash, Digest::of(b"other"), Digest::of(b"short")];
    assert_eq!(Index::open(&path).sketched(), hashes.into());
    // Recorded twice, the sketch is stored once. A lookup finds it and not the other one.
    Index::open(&path).note(std::slice::from_ref(&new), LATE);
    let near = Index::open(&path).sketches_near(&new.sketch);
    assert_eq!(near.len(), 1);
    assert_eq!((near[0].hash, near[0].name.as_str()), (new.hash, "a-skill"));
    assert!(
        Index::open(&path)
            .sketches_near(&sketch(b"unknown"))
            .is_empty()
    );

    Index::open(&path).forget(&hashes);
    let index = Index::open(&path);
    assert!(index.sketched().is_empty() && index.sketches_near(&new.sketch).is_empty());
    let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let connection = index.connection.unwrap();
    let left = connection.query_row("SELECT count(*) FROM bands", [], count);
    assert_eq!(left, Ok(0));
}

const LATE: (i64, u64) = (i64::MAX, 0);

/// The row, if the index has one that is still current.
fn current(index: &Index, folder: &Path, new: &NewRow) -> Option<Row> {
    let store = DirHandle::new(folder).unwrap();
    let rows = index.rows();
    rows.get(&new.hash)?
        .current(&store, &new.hash, &new.row.name, &[new.row.signer])
        .cloned()
}

#[test]
fn a_row_is_current_until_something_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    Index::open(&path).note(std::slice::from_ref(&new), LATE);
    let index = Index::open(&path);
    let row = current(&index, folder.path(), &new).unwrap();
    assert_eq!(format!("{row:?}"), format!("{:?}", new.row));
    assert_eq!(index.texts()[&new.hash], new.texts);
    assert_eq!(index.agents()[&new.hash], new.row.agents);
    assert_eq!(index.version(&new.hash), new.row.version);

    // A row does not apply to another name or another signer.
    let store = DirHandle::new(folder.path()).unwrap();
    let stored = &index.rows()[&new.hash];
    let other = SecretKey::from_seed([2; 32]).public();
    let name = "another".parse().unwrap();
    let signer = new.row.signer;
    assert!(
        stored
            .current(&store, &new.hash, &name, &[signer])
            .is_none()
    );
    assert!(
        stored
            .current(&store, &new.hash, &new.row.name, &[other])
            .is_none()
    );

    std::thread::sleep(Duration::from_millis(20));
    let file = folder.path().join(new.hash.to_string());
    std::fs::write(file.join("files/SKILL.md"), "test").unwrap();
    assert!(current(&index, folder.path(), &new).is_none());
}

#[test]
fn a_ranking_counts_for_one_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let ranking = |packed: &[u8]| StoredRanking {
        bundles: vec![1; 32],
        packed: packed.to_vec(),
    };
    let (then, now) = (Digest::of(b"then"), Digest::of(b"now"));
    Index::open(&path).note_ranking(&then, &ranking(b"then"));
    Index::open(&path).note_ranking(&now, &ranking(b"now"));
    let index = Index::open(&path);
    assert!(index.ranking(&then).is_none());
    assert_eq!(index.ranking(&now).unwrap().packed, b"now");
    let connection = index.connection.as_ref().unwrap();
    connection
        .execute("UPDATE ranking SET packed = x'00'", [])
        .unwrap();
    assert!(index.ranking(&now).is_none(), "its checksum fails");
}

#[test]
fn an_index_of_an_earlier_version_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TABLE bundles (hash BLOB PRIMARY KEY, row TEXT NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID;
             INSERT INTO bundles VALUES (x'00', 'text', x'00');
             PRAGMA application_id = 1986819121; PRAGMA user_version = 3;",
        )
        .unwrap();
    let new = new_row(folder.path());
    let mut index = Index::open(&path);
    assert!(index.rows().is_empty());
    index.note(std::slice::from_ref(&new), LATE);
    assert!(current(&index, folder.path(), &new).is_some());
}

#[test]
fn what_was_written_a_moment_ago_is_not_taken_as_settled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    let now = new.stats[0].changed;
    let mut index = Index::open(&path);
    index.note(std::slice::from_ref(&new), now);
    assert!(index.rows().is_empty());
    assert_eq!(index.texts().len(), 1);
}

#[test]
fn a_damaged_index_is_put_aside_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    for damage in [&b"not a database, but long enough to be taken for one ........................................................."[..], b"SQLite format 3\0garbage"] {
        std::fs::write(&path, damage.repeat(50)).unwrap();
        let mut index = Index::open(&path);
        assert!(index.rows().is_empty());
        index.note(std::slice::from_ref(&new), LATE);
        assert_eq!(Index::open(&path).rows().len(), 1);
        assert!(folder.path().join("index.db.damaged").exists());
    }
}

#[test]
fn another_programs_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE bundles (x); INSERT INTO bundles VALUES (1)")
        .unwrap();
    let mut index = Index::open(&path);
    index.note(&[new_row(folder.path())], LATE);
    assert!(index.rows().is_empty());
    let left: i64 = other
        .query_row("SELECT count(*) FROM bundles", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 1);
}

#[test]
fn a_row_that_was_changed_is_not_current() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    let mut index = Index::open(&path);
    let connection = Connection::open(&path).unwrap();
    for change in [
        "version = 4",
        "size = 98",
        "parts = '[]'",
        "agents = '[]'",
        "agents = 'no list'",
        "paths = '[]'",
        "checksum = zeroblob(32)",
    ] {
        index.note(std::slice::from_ref(&new), LATE);
        assert!(current(&index, folder.path(), &new).is_some(), "{change}");
        connection
            .execute(&format!("UPDATE bundles SET {change}"), [])
            .unwrap();
        assert!(current(&index, folder.path(), &new).is_none(), "{change}");
    }
}

use std::collections::BTreeSet;

use vault_format::keys::SecretKey;
use vault_format::root::{KeyEntry, KeyName, RootEdit, RootState};
use vault_format::time::Timestamp;

use super::*;

fn signer() -> PublicKey {
    SecretKey::from_seed([1; 32]).public()
}

/// Returns the trust for earlier content of a vault whose only publisher has the key of this seed.
fn trusted(seed: u8) -> Trusted {
    let key = SecretKey::from_seed([seed; 32]);
    let entry = KeyEntry {
        public_key: key.public(),
        name: KeyName::default_for(&key.public()),
    };
    let mut edit = RootEdit::begin_first(Timestamp::default());
    edit.add_root_key(entry.clone()).unwrap();
    edit.add_publisher(entry).unwrap();
    Trusted::for_earlier(RootState::new(edit.sign(&[&key]).unwrap(), BTreeSet::new()))
}

fn new_row(folder: &Path) -> NewIndexRow {
    let hash = Digest::of(b"bundle");
    let held = store::bundle_folder(&HeldPath::new(folder), &hash);
    let root = folder.join(hash.to_string());
    std::fs::create_dir_all(root.join("files")).unwrap();
    std::fs::write(root.join("manifest.json"), "{}").unwrap();
    std::fs::write(root.join("files/SKILL.md"), "text").unwrap();
    let paths = ["manifest.json", "files", "files/SKILL.md"];
    NewIndexRow {
        hash,
        stats: paths
            .map(|path| tree::file_stat(&held.join(path)).unwrap())
            .into(),
        row: IndexRow {
            name: "a-skill".parse().unwrap(),
            version: 3,
            signer: signer().to_string(),
            size: 99,
            parts: vec![(Digest::of(b"part"), 7)],
            paths: paths.map(str::to_owned).into(),
            texts: Texts {
                description: "one\nline".to_owned(),
                agents: vec!["codex".parse().unwrap()],
                ..Texts::default()
            },
            sketch: vec![7; 256],
        },
    }
}

const LATE: (i64, u64) = (i64::MAX, 0);

fn open(path: &Path) -> Index {
    Index::open_at(path, SealKey::new([7; 32]))
}

/// Returns the stored row of the bundle, if it is still current.
fn current(index: &Index, folder: &Path, new: &NewIndexRow) -> Option<IndexRow> {
    let rows = index.load_rows();
    rows.get(&new.hash)?
        .current_row(
            &HeldPath::new(folder),
            &new.hash,
            &new.row.name,
            &trusted(1),
        )
        .cloned()
}

#[test]
fn a_row_is_current_until_something_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    open(&path).insert_rows(std::slice::from_ref(&new), LATE);
    let index = open(&path);
    assert_eq!(current(&index, folder.path(), &new), Some(new.row.clone()));

    // A row does not apply to another name or another signer.
    let stored = &index.load_rows()[&new.hash];
    let name = "another".parse().unwrap();
    for (name, seed) in [(&name, 1), (&new.row.name, 2)] {
        assert!(
            stored
                .current_row(
                    &HeldPath::new(folder.path()),
                    &new.hash,
                    name,
                    &trusted(seed)
                )
                .is_none()
        );
    }

    std::thread::sleep(Duration::from_millis(20));
    let file = folder.path().join(new.hash.to_string());
    std::fs::write(file.join("files/SKILL.md"), "test").unwrap();
    assert!(current(&index, folder.path(), &new).is_none());
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
    let mut index = open(&path);
    assert!(index.load_rows().is_empty());
    index.insert_rows(std::slice::from_ref(&new), LATE);
    assert!(current(&index, folder.path(), &new).is_some());
}

#[test]
fn what_was_written_a_moment_ago_is_not_taken_as_settled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    let now = new.stats[0].changed;
    let mut index = open(&path);
    index.insert_rows(std::slice::from_ref(&new), now);
    assert!(current(&index, folder.path(), &new).is_none());
    assert_eq!(
        index.load_rows()[&new.hash].row,
        new.row,
        "known, but unverified"
    );
    index.remove_rows(&[new.hash]);
    assert!(index.load_rows().is_empty());
}

#[test]
fn a_damaged_index_is_put_aside_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    for damage in [&b"not a database, but long enough to be taken for one ........................................................."[..], b"SQLite format 3\0garbage"] {
        std::fs::write(&path, damage.repeat(50)).unwrap();
        let mut index = open(&path);
        assert!(index.load_rows().is_empty());
        index.insert_rows(std::slice::from_ref(&new), LATE);
        assert_eq!(open(&path).load_rows().len(), 1);
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
    let mut index = open(&path);
    index.insert_rows(&[new_row(folder.path())], LATE);
    assert!(index.load_rows().is_empty());
    let left: i64 = other
        .query_row("SELECT count(*) FROM bundles", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 1);
}

#[test]
fn a_row_that_was_changed_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    let mut index = open(&path);
    let connection = Connection::open(&path).unwrap();
    for change in [
        "hash = zeroblob(32)",
        "name = 'another'",
        "version = 4",
        "signer = 'me'",
        "size = 98",
        "parts = '[]'",
        "agents = '[]'",
        "agents = 'no list'",
        "paths = replace(paths, '\"files\",', '')",
        "texts = replace(texts, 'one', 'two')",
        "sketch = zeroblob(256)",
        "metadata = zeroblob(32)",
        "metadata = x''",
        "seal = zeroblob(32)",
        "seal = x''",
        "seal = 'text'",
    ] {
        connection.execute("DELETE FROM bundles", []).unwrap();
        index.insert_rows(std::slice::from_ref(&new), LATE);
        assert!(current(&index, folder.path(), &new).is_some(), "{change}");
        connection
            .execute(&format!("UPDATE bundles SET {change}"), [])
            .unwrap();
        assert!(index.load_rows().is_empty(), "{change}");
    }
}

#[test]
fn a_row_sealed_under_another_key_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.db");
    let new = new_row(folder.path());
    Index::open_at(&path, SealKey::new([8; 32])).insert_rows(std::slice::from_ref(&new), LATE);
    let mut index = open(&path);
    assert!(index.load_rows().is_empty());
    index.insert_rows(std::slice::from_ref(&new), LATE);
    assert!(current(&index, folder.path(), &new).is_some());
}

/// Others may read a vault's folder, but not the index in it, which has the descriptions of private
/// skills too.
#[test]
fn nobody_else_may_read_the_index_whatever_the_folder_and_an_earlier_version_left() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let folder = tempfile::tempdir().unwrap();
    set(folder.path(), 0o755);
    let path = folder.path().join("index.db");
    drop(open(&path));
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&journal_path(&path)), 0o600);
    for file in [&path, &journal_path(&path)] {
        set(file, 0o644);
    }
    drop(open(&path));
    assert_eq!([mode(&path), mode(&journal_path(&path))], [0o600; 2]);
    // The path may name another program's file by mistake, which stays as it is.
    let foreign = folder.path().join("foreign.db");
    let connection = Connection::open(&foreign).unwrap();
    connection.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(connection);
    set(&foreign, 0o644);
    assert!(open(&foreign).connection.is_none());
    assert_eq!(mode(&foreign), 0o644);
}

use std::fs::write;
use std::os::unix::{fs::symlink, net::UnixListener};

use vault_testing::assert_matches;

use super::*;

type Plant = fn(&Path);

const LIMITS: SourceLimits = SourceLimits {
    files: 4,
    file_bytes: 100,
    total_bytes: 150,
    depth: 3,
};

fn folder() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let skill = home.path().join("my-skill");
    std::fs::create_dir(&skill).unwrap();
    write(skill.join("SKILL.md"), "text").unwrap();
    (home, skill)
}

fn read_it(path: &Path) -> Result<SourceFolder, SourceError> {
    read_skill_folder(path, LIMITS, &|name| name == ".git")
}

#[test]
fn a_folder_and_its_skill_file_give_the_same() {
    let (_home, skill) = folder();
    std::fs::create_dir_all(skill.join(".git/deep")).unwrap();
    std::fs::create_dir(skill.join("bin")).unwrap();
    write(skill.join("bin/run"), "#!/bin/sh\n").unwrap();
    let by_folder = read_it(&skill).unwrap();
    let by_file = read_it(&skill.join("SKILL.md")).unwrap();
    for read in [by_folder, by_file] {
        assert_eq!(read.name.as_deref(), Some("my-skill"));
        let paths: Vec<_> = read.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["SKILL.md", "bin/run"]);
    }
}

#[test]
fn what_is_no_plain_file_is_refused() {
    let fifo: Plant = |at| {
        rustix::fs::mknodat(rustix::fs::CWD, at, FileType::Fifo, Bits::empty(), 0).unwrap();
    };
    let plants: [(&str, Plant); 6] = [
        ("symbolic link", |at| symlink("/etc/passwd", at).unwrap()),
        ("symbolic link", |at| symlink("/etc", at).unwrap()),
        ("symbolic link", |at| symlink("nowhere", at).unwrap()),
        ("symbolic link", |at| symlink("SKILL.md", at).unwrap()),
        ("FIFO", fifo),
        ("socket", |at| drop(UnixListener::bind(at).unwrap())),
    ];
    for (reason, plant) in plants {
        let (_home, skill) = folder();
        std::fs::create_dir(skill.join("sub")).unwrap();
        plant(&skill.join("sub/x"));
        let refused = read_it(&skill).unwrap_err().to_string();
        assert!(
            refused.contains(reason) && refused.contains("sub/x"),
            "{refused}"
        );
    }
}

#[test]
fn the_folder_itself_may_not_be_a_link_even_with_a_slash() {
    let (home, skill) = folder();
    let link = home.path().join("link");
    symlink(&skill, &link).unwrap();
    for path in [link.clone(), link.join("")] {
        assert_matches!(read_it(&path), Err(SourceError::Link(_)), "{path:?}");
    }
}

#[test]
fn limits_are_kept_while_reading() {
    let plants: [(&str, Plant); 4] = [
        ("files", |skill| {
            for name in ["a", "b", "c", "d"] {
                write(skill.join(name), "").unwrap();
            }
        }),
        ("bytes in one file", |skill| {
            write(skill.join("a"), [0; 101]).unwrap();
        }),
        ("bytes in one skill", |skill| {
            write(skill.join("a"), [0; 80]).unwrap();
            write(skill.join("b"), [0; 80]).unwrap();
        }),
        ("levels", |skill| {
            std::fs::create_dir_all(skill.join("a/b/c/d")).unwrap();
        }),
    ];
    for (reason, plant) in plants {
        let (_home, skill) = folder();
        plant(&skill);
        let refused = read_it(&skill).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn another_users_file_does_not_come_in_by_a_hard_link() {
    if effective_user() != 0 {
        return; // only root can give a file away
    }
    let (home, skill) = folder();
    let secret = home.path().join("secret");
    write(&secret, "secret").unwrap();
    std::os::unix::fs::chown(&secret, Some(4711), Some(4711)).unwrap();
    std::fs::hard_link(&secret, skill.join("notes.md")).unwrap();
    assert_matches!(read_it(&skill), Err(SourceError::HardLink(_)));
}

#[test]
fn other_things_are_named_for_what_they_are() {
    let (home, skill) = folder();
    let other = skill.join("notes.md");
    write(&other, "x").unwrap();
    assert_matches!(read_it(&other), Err(SourceError::NotASkill(_)));
    assert_matches!(
        read_it(&home.path().join("nothing")),
        Err(SourceError::Missing(_))
    );
}

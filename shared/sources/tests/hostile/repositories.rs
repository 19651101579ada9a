//! Repositories through git.

use std::os::unix::fs::symlink;

use super::Table;
use crate::support::{
    Answer, Repository, SiteServer, fetch, fetcher_with, parse, plain_fetcher, plain_settings,
    skill_md,
};

const BAD: &str = "source_malformed";
const GONE: &str = "source_not_found";
const LARGE: &str = "source_too_large";
const DOWN: &str = "source_unreachable";
const CLOSED: &str = "source_not_allowed";
const INSIDE: &str = "source_not_public";

/// Name, change to a repository with the good skill `skills/pdf`, what follows its address, code
/// and part of the message.
type Row = (
    &'static str,
    fn(&Repository),
    &'static str,
    &'static str,
    &'static str,
);

/// Adds an entry to the index as it stands.
fn index(repository: &Repository, mode: &str, id: &str, path: &str) {
    repository.git(&[
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("{mode},{id},{path}"),
    ]);
    repository.git(&["commit", "--quiet", "--message", "x"]);
}

fn link(repository: &Repository, to: &str, path: &str) {
    let _ = std::fs::remove_file(repository.path().join(path));
    symlink(to, repository.path().join(path)).unwrap();
    repository.commit();
}

/// Commits a tree with these lines instead of the skill's folder. git checks none of them.
fn tree(repository: &Repository, lines: &[&str]) {
    let blob = repository.git(&["rev-parse", "HEAD:skills/pdf/SKILL.md"]);
    let skill = format!("100644 blob {blob}\tSKILL.md\n");
    let lines = lines.iter().map(|line| line.replace('@', &blob) + "\n");
    let listing: String = std::iter::once(skill).chain(lines).collect();
    repository.write(".git/listing", listing);
    let make = "alias.make=!git mktree --missing < .git/listing";
    let tree = repository.git(&["-c", make, "make"]);
    let commit = repository.git(&["commit-tree", &tree, "-m", "x"]);
    repository.git(&["update-ref", "refs/heads/main", &commit]);
}

const FILES: &[Row] = &[
    (
        "link out",
        |git| link(git, "/etc/passwd", "skills/pdf/link"),
        "",
        BAD,
        "skills/pdf/link is a symbolic link",
    ),
    (
        "link to a folder",
        |git| link(git, "../..", "skills/pdf/up"),
        "",
        BAD,
        "skills/pdf/up is a symbolic link",
    ),
    (
        "SKILL.md that is a link",
        |git| link(git, "/etc/passwd", "skills/pdf/SKILL.md"),
        "",
        BAD,
        "skills/pdf/SKILL.md is a symbolic link",
    ),
    (
        "link with a hidden name",
        |git| link(git, "x", "skills/pdf/\u{202e}fdp\x1b[2J"),
        "",
        BAD,
        "\\u{202e}fdp\\u{1b}[2J is a symbolic link",
    ),
    (
        "submodule",
        |git| {
            index(
                git,
                "160000",
                &git.git(&["rev-parse", "HEAD"]),
                "skills/pdf/sub",
            );
        },
        "",
        BAD,
        "skills/pdf/sub is a submodule",
    ),
    (
        "large file",
        |git| {
            git.write("skills/pdf/a", vec![7; (4 << 20) + 2]).commit();
        },
        "",
        LARGE,
        "exceeds 4194304 bytes",
    ),
    (
        "large skill",
        |git| {
            for at in 0..7 {
                git.write(&format!("skills/pdf/{at}"), vec![at; 4 << 20]);
            }
            git.commit();
        },
        "",
        LARGE,
        "exceeds 26214400 bytes",
    ),
    (
        "too many files",
        |git| {
            for at in 0..1_024 {
                git.write(&format!("skills/pdf/{at}"), "x");
            }
            git.commit();
        },
        "",
        LARGE,
        "skills/pdf exceeds 1024 files",
    ),
    (
        "skill of a dependency",
        |git| {
            git.git(&["mv", "skills", "node_modules"]);
            git.commit();
        },
        "",
        GONE,
        "holds no SKILL.md",
    ),
    (
        "file twice",
        |git| tree(git, &["100644 blob @\ta", "100755 blob @\ta"]),
        "",
        BAD,
        "it holds a twice",
    ),
    (
        "parent as a file",
        |git| tree(git, &["100644 blob @\t.."]),
        "",
        BAD,
        ".. is not a path inside the repository",
    ),
    (
        "folder of git as a file",
        |git| tree(git, &["100644 blob @\t.git"]),
        "",
        BAD,
        ".git is not a path inside the repository",
    ),
    (
        "file that is not there",
        |git| {
            tree(
                git,
                &["100644 blob 0123456789012345678901234567890123456789\ta"],
            );
        },
        "",
        DOWN,
        "git could not read the repository",
    ),
];

const REFERENCES: &[Row] = &[
    (
        "unknown branch",
        |_| (),
        "#none",
        GONE,
        "no branch and no tag none",
    ),
    (
        "part of a commit",
        |_| (),
        "#0123456",
        GONE,
        "named by its full id",
    ),
    (
        "unknown commit",
        |_| (),
        "#0123456789012345678901234567890123456789",
        GONE,
        "no such branch, tag or commit",
    ),
    (
        "folder that is not there",
        |_| (),
        "//none",
        GONE,
        "none holds no SKILL.md",
    ),
    (
        "file as a folder",
        |_| (),
        "//skills/pdf/SKILL.md",
        GONE,
        "SKILL.md holds no SKILL.md",
    ),
    (
        "tag of a file",
        |git| {
            git.git(&["tag", "file", "HEAD:skills/pdf/SKILL.md"]);
        },
        "#file",
        DOWN,
        "git could not read the repository",
    ),
    (
        "tag of a folder",
        |git| {
            git.git(&["tag", "folder", "HEAD:skills"]);
        },
        "#folder",
        DOWN,
        "git could not read the repository",
    ),
    (
        "head that leads nowhere",
        |git| {
            git.git(&["symbolic-ref", "HEAD", "refs/heads/none"]);
        },
        "",
        GONE,
        "has no commits",
    ),
    (
        "object that is cut",
        |git| {
            let id = git.git(&["rev-parse", "HEAD:skills/pdf/SKILL.md"]);
            let path = git
                .path()
                .join(format!(".git/objects/{}/{}", &id[..2], &id[2..]));
            std::fs::remove_file(&path).unwrap();
            std::fs::write(path, "x").unwrap();
        },
        "",
        DOWN,
        "git could not read the repository",
    ),
    (
        "no repository",
        |git| std::fs::remove_dir_all(git.path().join(".git")).unwrap(),
        "",
        GONE,
        "there is no repository at this address",
    ),
];

/// Name, answer of a server at the address of a repository, code and part of the message.
const SERVERS: &[(&str, &str, &str, &str)] = &[
    (
        "web page",
        "200 OK\r\nContent-Type: text/html\r\n\r\n<html>",
        GONE,
        "has no commits",
    ),
    ("missing", "404 No\r\n\r\n", GONE, "no repository"),
    (
        "private",
        "401 No\r\n\r\n",
        CLOSED,
        "git's credentials do not give access",
    ),
    (
        "forbidden",
        "403 No\r\n\r\n",
        CLOSED,
        "git's credentials do not give access",
    ),
    ("failure", "500 No\r\n\r\n", DOWN, "does not answer"),
    (
        "other transport",
        "302 Found\r\nLocation: ftp://127.0.0.1/a/b.git/info/refs\r\n\r\n",
        DOWN,
        "git could not read the repository",
    ),
    (
        "local file",
        "302 Found\r\nLocation: file:///etc/info/refs\r\n\r\n",
        DOWN,
        "git could not read the repository",
    ),
    (
        "no lines of git",
        "200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\nzzzz",
        DOWN,
        "git could not read the repository",
    ),
    (
        "error with an escape",
        "200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n\
         001e# service=git-upload-pack\n0000000eERR \x1b[2J\n",
        DOWN,
        "git could not read the repository",
    ),
];

/// Addresses that a caller from elsewhere must not reach.
const ADDRESSES: &[(&str, &str, &str, &str)] = &[
    (
        "this machine",
        "https://127.0.0.1/a/b.git",
        INSIDE,
        "not public",
    ),
    (
        "this machine by name",
        "https://localhost/a/b.git",
        INSIDE,
        "not public",
    ),
    (
        "this machine, IPv6",
        "https://[::1]/a/b.git",
        INSIDE,
        "not public",
    ),
    (
        "this machine, mapped",
        "https://[::ffff:7f00:1]/a/b.git",
        INSIDE,
        "not public",
    ),
    (
        "this machine, one number",
        "https://2130706433/a/b.git",
        INSIDE,
        "not public",
    ),
    ("private", "https://10.0.0.1/a/b.git", INSIDE, "not public"),
    (
        "cloud",
        "https://169.254.169.254/a/b.git",
        INSIDE,
        "not public",
    ),
    (
        "SSH",
        "git@git.example.com:a/b.git",
        "source_unsupported",
        "over SSH with this machine's",
    ),
];

#[tokio::test]
async fn a_repository() {
    let (fetcher, site) = (plain_fetcher(), SiteServer::new());
    let mut table = Table::default();
    for (row, change, suffix, code, part) in [FILES, REFERENCES].concat() {
        let repository = Repository::new();
        repository
            .write("skills/pdf/SKILL.md", skill_md("pdf"))
            .commit();
        change(&repository);
        let source = parse(&format!("git:{}{suffix}", repository.address()));
        table.check(row, fetch(&fetcher, &source, None).await, code, part);
    }
    for (at, (row, head, code, part)) in SERVERS.iter().enumerate() {
        let path = format!("/{at}/a.git/info/refs");
        site.put(&path, Answer::Raw(format!("HTTP/1.1 {head}").into_bytes()));
        let source = parse(&format!("{}/{at}/a.git", site.base));
        table.check(row, fetch(&fetcher, &source, None).await, code, part);
    }
    let mut guarded = plain_settings();
    (guarded.guarded, guarded.git.loopback) = (true, false);
    guarded.git.program = "/nowhere/git".into();
    let guarded = fetcher_with(guarded);
    for (row, address, code, part) in ADDRESSES {
        table.check(
            row,
            fetch(&guarded, &parse(address), None).await,
            code,
            part,
        );
    }
    table.finish();
}

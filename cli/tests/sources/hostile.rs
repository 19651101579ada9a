//! Hostile folders of this machine, and hostile calls of `add_skill`: each row with the error that
//! it ends in. The other kinds of sources have their tables in the tests of `vault-sources`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::*;
use crate::support::agent::Agent;

/// Name, what to put into the folder of the skill `pdf`, exit code, code and part of the message or
/// of the first finding.
type FolderRow = (&'static str, fn(&Path), i32, &'static str, &'static str);

fn write(folder: &Path, name: impl AsRef<OsStr>, bytes: impl AsRef<[u8]>) {
    std::fs::write(folder.join(name.as_ref()), bytes).unwrap();
}

fn document(folder: &Path, bytes: impl AsRef<[u8]>) {
    write(folder, "SKILL.md", bytes);
}

fn replace_document(folder: &Path) -> std::path::PathBuf {
    let document = folder.join("SKILL.md");
    std::fs::remove_file(&document).unwrap();
    document
}

const ENTRIES: &[FolderRow] = &[
    (
        "link to a file outside",
        |f| symlink("/etc/passwd", f.join("notes.md")).unwrap(),
        5,
        "symlink",
        "notes.md is a symbolic link",
    ),
    (
        "link to a folder outside",
        |f| symlink("/etc", f.join("docs")).unwrap(),
        5,
        "symlink",
        "docs is a symbolic link",
    ),
    (
        "link inside",
        |f| symlink("SKILL.md", f.join("copy.md")).unwrap(),
        5,
        "symlink",
        "copy.md is a symbolic link",
    ),
    (
        "link to itself",
        |f| symlink("loop", f.join("loop")).unwrap(),
        5,
        "symlink",
        "loop is a symbolic link",
    ),
    (
        "link to nothing",
        |f| symlink("gone", f.join("notes.md")).unwrap(),
        5,
        "symlink",
        "notes.md is a symbolic link",
    ),
    (
        "SKILL.md that is a link",
        |f| symlink("/etc/passwd", replace_document(f)).unwrap(),
        5,
        "symlink",
        "SKILL.md is a symbolic link",
    ),
    (
        "SKILL.md that is a folder",
        |f| std::fs::create_dir(replace_document(f)).unwrap(),
        5,
        "gate_blocked",
        "there is no SKILL.md",
    ),
    (
        "SKILL.md that is a pipe",
        |f| make_fifo(&replace_document(f)),
        5,
        "symlink",
        "SKILL.md is a FIFO",
    ),
    (
        "pipe",
        |f| make_fifo(&f.join("data")),
        5,
        "symlink",
        "data is a",
    ),
    (
        "socket",
        |f| drop(UnixListener::bind(f.join("s")).unwrap()),
        5,
        "symlink",
        "s is a socket",
    ),
    (
        "many files",
        |f| (0..1_024).for_each(|at| write(f, format!("f{at}"), "")),
        1,
        "source_too_large",
        "1024 files",
    ),
    (
        "large file",
        |f| write(f, "data", vec![7; (4 << 20) + 1]),
        1,
        "source_too_large",
        "data",
    ),
    (
        "large skill",
        |f| (0..7).for_each(|at| write(f, format!("f{at}"), vec![at; 4 << 20])),
        1,
        "source_too_large",
        "bytes",
    ),
    (
        "many levels",
        |f| std::fs::create_dir_all(f.join("a/".repeat(70))).unwrap(),
        1,
        "source_too_large",
        "16 levels of folders",
    ),
];

const NAMES: &[FolderRow] = &[
    (
        "not UTF-8",
        |f| write(f, OsStr::from_bytes(b"a\xff.md"), "x"),
        1,
        "source_malformed",
        "is not UTF-8",
    ),
    (
        "escape",
        |f| write(f, "a\x1b[2J.md", "x"),
        5,
        "gate_blocked",
        "must not contain U+001B",
    ),
    (
        "text that turns",
        |f| write(f, "a\u{202e}dm.exe", "x"),
        5,
        "gate_blocked",
        "must not contain U+202E",
    ),
    (
        "line break",
        |f| write(f, "a\nb.md", "x"),
        5,
        "gate_blocked",
        "must not contain U+000A",
    ),
    (
        "backslash",
        |f| write(f, "..\\evil.md", "x"),
        5,
        "gate_blocked",
        "path must not contain",
    ),
    (
        "names that differ in case",
        |f| {
            write(f, "notes.md", "x");
            write(f, "Notes.md", "y");
        },
        5,
        "gate_blocked",
        "letter case does not count",
    ),
    (
        "device of Windows",
        |f| write(f, "aux.md", "x"),
        5,
        "gate_blocked",
        "a Windows device name",
    ),
];

const DOCUMENTS: &[FolderRow] = &[
    (
        "empty",
        |f| document(f, ""),
        5,
        "gate_blocked",
        "has no frontmatter",
    ),
    (
        "not UTF-8",
        |f| document(f, b"---\nname: pdf\ndescription: \xff\n---\n"),
        5,
        "gate_blocked",
        "is not UTF-8 text",
    ),
    (
        "without an end",
        |f| document(f, "---\nname: pdf\ndescription: x\n"),
        5,
        "gate_blocked",
        "is not closed",
    ),
    (
        "two names",
        |f| document(f, "---\nname: pdf\nname: csv\ndescription: x\n---\n"),
        5,
        "gate_blocked",
        "stands here a second time",
    ),
    (
        "text that grows",
        |f| {
            let text = "---\na: &a [x, x]\nb: &b [*a, *a]\nname: pdf\ndescription: *b\n---\n";
            document(f, text);
        },
        5,
        "gate_blocked",
        "anchors are not read",
    ),
    (
        "large",
        |f| document(f, skill_md("pdf") + &"x".repeat(256 << 10)),
        5,
        "gate_blocked",
        "262144 are allowed",
    ),
    (
        "pointer of Git LFS",
        |f| {
            let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
            document(f, pointer);
        },
        5,
        "gate_blocked",
        "lfs-pointer",
    ),
];

#[test]
fn a_folder() {
    let mut wrong = Vec::new();
    let rows = [ENTRIES, NAMES, DOCUMENTS].concat();
    assert!(rows.len() >= 20, "only {} rows", rows.len());
    for (row, plant, exit, code, part) in rows {
        let machine = Machine::new();
        machine.home.write("pdf/SKILL.md", skill_md("pdf"));
        plant(&machine.home.path("pdf"));
        let source = machine.home.path("pdf");
        let ended = machine.run(&["add", source.to_str().unwrap()]);
        let error = &ended.json["error"];
        let finding = &ended.json["data"]["findings"][0];
        let told = format!(
            "{} {} {}",
            error["message"], finding["rule"], finding["message"]
        );
        let is_right = ended.code == exit && error["code"] == code && told.contains(part);
        if !is_right || machine.home.path(".vault").exists() {
            wrong.push(format!("{row}: {} {} {told}", ended.code, error["code"]));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Arguments of `add_skill`, code and part of the message. `HERE` is a folder of this machine.
type CallRow = (&'static str, &'static str, &'static str);

const CALLS: &[CallRow] = &[
    (
        r#"{"source":"git","identifier":""}"#,
        "invalid_arguments",
        "not in its canonical form",
    ),
    (
        r#"{"source":"git","identifier":"ext::sh -c x"}"#,
        "invalid_arguments",
        "ext::sh -c x",
    ),
    (
        r#"{"source":"git","identifier":"file:///etc"}"#,
        "invalid_arguments",
        "file:///etc",
    ),
    (
        r#"{"source":"git","identifier":"--upload-pack=x"}"#,
        "invalid_arguments",
        "not in its canonical form",
    ),
    (
        r#"{"source":"git","identifier":"acme/../../etc"}"#,
        "invalid_arguments",
        "not in its canonical form",
    ),
    (
        r#"{"source":"git","identifier":"git@git.example:acme/skills"}"#,
        "invalid_arguments",
        "over SSH only",
    ),
    (
        r#"{"source":"git","identifier":"git@github.com:-oProxyCommand=x/y"}"#,
        "source_unsupported",
        "not the name of an owner",
    ),
    (
        r#"{"source":"git","identifier":"https://ann:s3cret@git.example/a/b"}"#,
        "invalid_arguments",
        "a user name or password",
    ),
    (
        r#"{"source":"url","identifier":"https://ann:s3/s3cret@docs.example/a"}"#,
        "invalid_arguments",
        "https://…@docs.example/a",
    ),
    (
        r#"{"source":"git","identifier":"https://127.0.0.1/a/b.git"}"#,
        "source_unreachable",
        "not public",
    ),
    (
        r#"{"source":"git","identifier":"https://169.254.169.254/a/b.git"}"#,
        "source_unreachable",
        "not public",
    ),
    (
        r#"{"source":"git","identifier":"acme/skills","ref":"a..b"}"#,
        "source_unsupported",
        "not a branch, tag, commit",
    ),
    (
        r#"{"source":"git","identifier":"acme/skills","ref":""}"#,
        "invalid_arguments",
        "`ref` has 1 to 255",
    ),
    (
        r#"{"source":"git","identifier":"acme/skills","ref":"a\u001b[2J"}"#,
        "invalid_arguments",
        "`ref` has 1 to 255",
    ),
    (
        r#"{"source":"git","identifier":"acme/skills#v1","ref":"v2"}"#,
        "invalid_arguments",
        "different references",
    ),
    (
        r#"{"source":"git","identifier":"acme/skills","skill":"../pdf"}"#,
        "invalid_arguments",
        "a skill name has",
    ),
    (
        r#"{"source":"git","identifier":"acme/skills","skill_dir":"HERE/pdf"}"#,
        "invalid_arguments",
        "`skill_dir` is only for",
    ),
    (
        r#"{"source":"url","identifier":"http://docs.example/SKILL.md"}"#,
        "invalid_arguments",
        "http://docs.example",
    ),
    (
        r#"{"source":"url","identifier":"https://10.0.0.1/a.zip"}"#,
        "source_unreachable",
        "not public",
    ),
    (
        r#"{"source":"url","identifier":"https://[::1]/a.zip"}"#,
        "source_unreachable",
        "not public",
    ),
    (
        r#"{"source":"url","identifier":"https://2130706433/a.zip"}"#,
        "source_unreachable",
        "not public",
    ),
    (
        r#"{"source":"url","identifier":"/etc/passwd"}"#,
        "invalid_arguments",
        "/etc/passwd",
    ),
    (
        r#"{"source":"url","identifier":"file:///etc/passwd"}"#,
        "invalid_arguments",
        "file:///etc/passwd",
    ),
    (
        r#"{"source":"wellknown","identifier":"http://127.0.0.1:9/pdf"}"#,
        "invalid_arguments",
        "name one with `skill`",
    ),
    (
        r#"{"source":"wellknown","identifier":"https://127.0.0.1/pdf"}"#,
        "source_unreachable",
        "not public",
    ),
    (
        r#"{"source":"registry","identifier":"../pdf"}"#,
        "invalid_arguments",
        "not in its canonical form",
    ),
    (
        r#"{"source":"registry","identifier":"https://127.0.0.1/pdf"}"#,
        "invalid_arguments",
        "not in its canonical form",
    ),
    (
        r#"{"source":"local","identifier":"local:pdf"}"#,
        "invalid_arguments",
        "needs `skill_dir`",
    ),
    (
        r#"{"source":"local","identifier":"local:pdf","skill_dir":"HERE/pdf","ref":"v1"}"#,
        "invalid_arguments",
        "`ref` is not for",
    ),
    (
        r#"{"source":"local","identifier":"local:pdf","skill_dir":"HERE/gone"}"#,
        "invalid_arguments",
        "does not exist",
    ),
    (
        r#"{"source":"local","identifier":"local:pdf","skill_dir":"/dev/zero"}"#,
        "invalid_arguments",
        "neither a skill folder",
    ),
    (
        r#"{"source":"local","identifier":"local:pdf","skill_dir":"HERE/pdf","skill":"csv"}"#,
        "invalid_arguments",
        "is the skill pdf, not csv",
    ),
    (
        r#"{"source":"local","identifier":"github:acme/pdf","skill_dir":"HERE/pdf"}"#,
        "identifier_mismatch",
        "the identifier of this folder",
    ),
    (
        r#"{"source":"local","identifier":"local:linked","skill_dir":"HERE/linked"}"#,
        "invalid_arguments",
        "notes.md is a symbolic link",
    ),
    (
        r#"{"source":"vault","identifier":"vault:acme/pdf"}"#,
        "invalid_arguments",
        "unknown variant",
    ),
    (
        r#"{"source":"git","identifier":"acme/skills","allow":["miner"]}"#,
        "invalid_arguments",
        "unknown field `allow`",
    ),
];

#[test]
fn a_call_of_an_agent() {
    let machine = Machine::new();
    let here = machine.home.root();
    for name in ["pdf", "linked"] {
        machine
            .home
            .write(&format!("{name}/SKILL.md"), skill_md(name));
    }
    symlink("/etc/passwd", here.join("linked/notes.md")).unwrap();
    let mut command = machine.command(&["mcp"]);
    command.env_remove("VAULT_SOURCES_ALLOW_LOOPBACK");
    let mut agent = Agent::start(command);
    agent.greet();
    let mut wrong = Vec::new();
    assert!(CALLS.len() >= 20, "only {} rows", CALLS.len());
    for (arguments, code, part) in CALLS {
        let arguments = arguments.replace("HERE", here.to_str().unwrap());
        let call = serde_json::from_str(&arguments).unwrap();
        let answer = agent.call("add_skill", &call);
        let meta = answer["_meta"].as_object();
        let meta = meta.and_then(|meta| meta.values().next()).cloned();
        let found = meta.unwrap_or_default()["code"].clone();
        let told = answer["content"].to_string();
        let is_refused = answer["isError"] == true && !told.contains("s3cret");
        if !is_refused || found != *code || !told.contains(part) {
            wrong.push(format!("{arguments}: {found} {answer}"));
        }
    }
    agent.end();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

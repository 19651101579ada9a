//! Runs the transcripts in `tests/cmd`, each in its own home and without this machine's settings.

use std::path::Path;

/// Runs one transcript. `TRYCMD=overwrite` records the current output; review the difference before
/// committing it.
fn transcript(name: &str) {
    let home = tempfile::tempdir().unwrap();
    // A policy may exist before the first skill is added.
    if name == "policy.md" {
        let vault = home.path().join(".vault");
        std::fs::create_dir(&vault).unwrap();
        std::fs::copy("tests/policy/policy.toml", vault.join("policy.toml")).unwrap();
    }
    // vault detects agents by their folders in the home.
    for mark in match name {
        "agents.md" | "doctor.md" | "mcp.md" | "profiles.md" | "sync-profiles.md"
        | "transform.md" => &[".claude", ".cursor", ".codex"][..],
        _ => &[],
    } {
        std::fs::create_dir(home.path().join(mark)).unwrap();
    }
    let cases = trycmd::TestCases::new();
    if matches!(
        name,
        "history.md" | "install.md" | "outdated.md" | "rollback.md" | "sources.md" | "update.md"
    ) {
        upstream(home.path(), &cases);
    }
    if name == "drafts.md" {
        local_drafts(home.path(), &cases);
    }
    cases
        .env("HOME", home.path().to_str().unwrap())
        .env(
            "XDG_CONFIG_HOME",
            home.path().join(".config").to_str().unwrap(),
        )
        .env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100");
    // vault treats an empty variable as unset.
    for variable in [
        "CI",
        "CLICOLOR_FORCE",
        "PORT",
        "VAULT_ADMIN_EMAIL",
        "VAULT_ADMIN_PASSWORD",
        "VAULT_DATABASE_URL",
        "VAULT_DB_PATH",
        "VAULT_HTTP_PORT",
        "VAULT_LOG_LEVEL",
        "VAULT_MODE",
        "VAULT_PORT",
        "VAULT_PUBLIC_URL",
        "VAULT_SEARCH_MODE",
        "VAULT_SECURITY_STRICT",
        "VAULT_STORAGE_PATH",
        "GH_HOST",
        "GIT_SSH_COMMAND",
    ] {
        cases.env(variable, "");
    }
    cases
        .insert_var("[HOME]", home.path().display().to_string())
        .unwrap();
    cases.case(Path::new("tests/cmd").join(name));
    cases.run();
}

/// Creates a command for an agent whose changes wait, and one for their owner, who has one draft at a
/// time. Ids, digests and times of drafts differ from run to run.
fn local_drafts(home: &Path, cases: &trycmd::TestCases) {
    let vault = env!("CARGO_BIN_EXE_vault");
    let agent = format!(
        r#"#!/bin/sh
greeting='{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{}},"clientInfo":{{"name":"agent","version":"1"}}}}}}'
ready='{{"jsonrpc":"2.0","method":"notifications/initialized"}}'
case $1 in
write) arguments='{{"skill_md":"---\nname: greeting\ndescription: Greets whoever asks.\n---\n\nSay '$2'.\n"}}' tool=skill_publish ;;
remove) arguments='{{"name":"greeting"}}' tool=remove_skill ;;
esac
call='{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"'$tool'","arguments":'$arguments'}}}}'
printf '%s\n%s\n%s\n' "$greeting" "$ready" "$call" | VAULT_MCP_WRITES=draft {vault} mcp |
  sed -n 's/.*"status":"\([a-z]*\)".*/\1/p'
"#
    );
    let owner = format!(
        r#"#!/bin/sh
action=$1
shift
value() {{ sed -n 's/.*"'$1'":"\([^"]*\)".*/\1/p'; }}
if [ "$action" = list ]; then
  set --
else
  id=$({vault} drafts list --json | value id)
  [ "$action" != accept ] || set -- "$@" --bundle "$({vault} drafts show "$id" --json | value bundle)"
  set -- "$id" "$@"
fi
{vault} drafts "$action" "$@" > {home}/out 2>&1
code=$?
sed -E -e 's/[0-9A-Z]{{26}}/<id>/g' -e 's/[0-9a-f]{{64}}/<sha256>/g' -e 's/[0-9]{{4}}-[0-9-]*(T[0-9:.]*Z)?/<time>/g' {home}/out
exit $code
"#,
        home = home.display()
    );
    for (name, script) in [("agent", agent), ("owner", owner)] {
        let path = home.join(name);
        std::fs::write(&path, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        cases.register_bin(name, path);
    }
}

/// Returns a script that acts as the owner of the repository. Its argument selects the commit.
fn owner_script(repository: &Path) -> String {
    format!(
        r#"#!/bin/sh
set -e
export GIT_AUTHOR_DATE=2026-11-01T00:00:00Z GIT_COMMITTER_DATE=2026-11-01T00:00:00Z
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
cd {}
git() {{ command git -c user.name=Ann -c user.email=ann@example.com "$@"; }}
case $1 in
init)
  git init --quiet --initial-branch=main
  mkdir -p lint/bin notes
  printf -- '---\nname: lint\ndescription: Checks a change for common slips.\n---\n\nRun bin/check.sh.\n' > lint/SKILL.md
  printf '#!/bin/sh\nexec git diff --check\n' > lint/bin/check.sh
  chmod 755 lint/bin/check.sh
  printf -- '---\nname: notes\ndescription: Writes release notes from commits.\n---\n\nRead the log.\n' > notes/SKILL.md ;;
elsewhere) echo read me > README.md ;;
lint) printf 'Say what was found.\n' >> lint/SKILL.md ;;
break) printf -- '---\nname: lint\n---\n' > lint/SKILL.md ;;
esac
git add --all
git commit --quiet --message "$1"
[ "$1" != init ] || git tag v1
"#,
        repository.display()
    )
}

/// Creates a repository at `https://github.com/acme/skills` and a command for its owner. Dates are
/// fixed, so that the commit ids do not change.
fn upstream(home: &Path, cases: &trycmd::TestCases) {
    let repository = home.join("skills");
    let script = owner_script(&repository);
    std::fs::create_dir(&repository).unwrap();
    let tools = [
        ("upstream", script),
        (
            "policy",
            format!(
                "#!/bin/sh\nprintf '[sources]\\nallow = [\"github.com/acme/skills\"]\\n' > {}/.vault/policy.toml\n",
                home.display()
            ),
        ),
        (
            "show",
            format!(
                "#!/bin/sh\ncd {}/project && exec cat \"$1\"\n",
                home.display()
            ),
        ),
        (
            "author",
            format!(
                "#!/bin/sh\nset -e\ncd {}\nmkdir -p $1/notes\nprintf -- '---\\nname: notes\\ndescription: Writes release notes.\\n---\\n\\n%s\\n' \"$2\" > $1/notes/SKILL.md\n[ -z \"$3\" ] || tar -czf \"$3\" -C $1 notes\n",
                home.display()
            ),
        ),
        (
            "wish",
            format!(
                "#!/bin/sh\nprintf '\\n[[skill]]\\nname = \"notes\"\\nsource = \"acme/skills/notes\"\\nref = \"v1\"\\n' >> {}/project/vault.lock\n",
                home.display()
            ),
        ),
        (
            "forge",
            format!(
                "#!/bin/sh\nsed -i 's/^digest = \"[0-9a-f]\\{{8\\}}/digest = \"00000000/' {}/project/vault.lock\n",
                home.display()
            ),
        ),
    ];
    let tool = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = home.join(format!("{name}.sh"));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        cases.register_bin(name, path);
    };
    for (name, text) in &tools {
        tool(name, text);
    }
    let owner = home.join("upstream.sh");
    let made = std::process::Command::new(&owner)
        .arg("init")
        .status()
        .unwrap();
    assert!(made.success());
    // The project in which the commands of these transcripts run.
    let project = home.join("project");
    std::fs::create_dir(&project).unwrap();
    let vault = format!(
        "#!/bin/sh\ncd {} && exec {} \"$@\"\n",
        project.display(),
        env!("CARGO_BIN_EXE_vault")
    );
    tool("vault", &vault);
    let settings = format!(
        "[url \"file://{}\"]\n\tinsteadOf = https://github.com/acme/skills.git\n",
        repository.display()
    );
    std::fs::write(home.join(".gitconfig"), settings).unwrap();
    // The repository of these transcripts is on this machine.
    cases.env("VAULT_SOURCES_ALLOW_LOOPBACK", "true");
}

/// The name of a transcript's file without its ending, from the name of its test.
fn file_stem(test: &str) -> String {
    // `try` is a keyword of Rust.
    test.trim_start_matches("r#").replace('_', "-")
}

macro_rules! transcripts {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            transcript(&format!("{}.md", file_stem(stringify!($name))));
        })+
        const LISTED: &[&str] = &[$(stringify!($name)),+];
    };
}

// Braces keep one name per line. The formatter would join the names in parentheses, and every
// branch that adds one would conflict.
transcripts! {
    add,
    administer,
    agents,
    approve,
    audit,
    audit_log,
    audit_repo,
    author,
    backup,
    clients,
    cloud,
    completions,
    config,
    demo,
    devices,
    disable,
    doctor,
    drafts,
    enable,
    errors,
    export,
    find,
    fmt,
    help,
    history,
    import,
    install,
    json,
    key,
    link,
    lint,
    list,
    man,
    mcp,
    new,
    notices,
    operator,
    outdated,
    policy,
    profiles,
    publishers,
    release,
    remove,
    resolve,
    restore,
    rollback,
    search,
    serve,
    setup,
    show,
    skill,
    sources,
    status,
    sync,
    sync_profiles,
    transform,
    r#try,
    unlink,
    update,
    users,
    verify,
    version,
}

#[test]
fn no_transcript_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            path.extension().is_none_or(|end| end != "md")
                || LISTED.iter().any(|test| file_stem(test) == name),
            "list {name} in `transcripts!` of cli/tests/transcripts.rs"
        );
    }
}

#[test]
fn each_command_has_a_transcript() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_vault"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (commands, _) = help.split_once("\nExit codes:").unwrap();
    let commands = commands.lines().filter_map(|line| line.strip_prefix("  "));
    let names: Vec<&str> = commands.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let path = format!("{}/tests/cmd/{name}.md", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(!text.is_empty(), "{path}: no transcript of {name}");
    }
}

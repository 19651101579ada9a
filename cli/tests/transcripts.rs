//! The transcripts in `tests/cmd`, each with a home of its own and nothing of this machine's settings.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

use std::path::Path;

/// Runs one transcript. `TRYCMD=overwrite` writes what the commands print now: read the difference before you keep it.
fn transcript(name: &str) {
    let home = tempfile::tempdir().unwrap();
    // A vault that has no skill yet may have a policy.
    if name == "policy.md" {
        let vault = home.path().join(".vault");
        std::fs::create_dir(&vault).unwrap();
        std::fs::copy("tests/policy/policy.toml", vault.join("policy.toml")).unwrap();
    }
    // Agents are found by what they leave in a home.
    for mark in match name {
        "agents.md" | "doctor.md" | "mcp.md" | "transform.md" => {
            &[".claude", ".cursor", ".codex"][..]
        }
        _ => &[],
    } {
        std::fs::create_dir(home.path().join(mark)).unwrap();
    }
    let cases = trycmd::TestCases::new();
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
    // An empty variable counts as absent.
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
    ] {
        cases.env(variable, "");
    }
    cases
        .insert_var("[HOME]", home.path().display().to_string())
        .unwrap();
    cases.case(Path::new("tests/cmd").join(name));
    cases.run();
}

macro_rules! transcripts {
    ($($name:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            transcript(concat!(stringify!($name), ".md"));
        })+
        const LISTED: &[&str] = &[$(stringify!($name)),+];
    };
}

// In braces, or the formatter makes one line of them and every branch conflicts.
transcripts! {
    add,
    administer,
    agents,
    author,
    cloud,
    config,
    doctor,
    export,
    help,
    json,
    key,
    mcp,
    policy,
    remove,
    serve,
    skill,
    transform,
}

#[test]
fn no_transcript_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            path.extension().is_none_or(|end| end != "md") || LISTED.contains(&name),
            "list {name} above"
        );
    }
}

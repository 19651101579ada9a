use std::path::PathBuf;

use serde_json::json;

use super::openssh::tests::{sign, signers_of};
use super::*;
use crate::errors::{ErrorCode, Exit};

const ARCHIVE: &str = "vault-0.6.0-x86_64-unknown-linux-gnu.tar.gz";
const STATEMENT: &str = "vault-0.6.0-x86_64-unknown-linux-gnu.provenance.json";
const SEED: u8 = 7;

/// A release in a folder, which a test changes before it is checked.
struct Release {
    folder: tempfile::TempDir,
}

impl Release {
    fn new() -> Self {
        let release = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        release.write(ARCHIVE, b"the archive");
        release.write(STATEMENT, statement(ARCHIVE, b"the archive").as_bytes());
        release.sign_files();
        release
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Lists the files as they are now, and signs the list.
    fn sign_files(&self) {
        let sums = [ARCHIVE, STATEMENT]
            .map(|name| format!("{}  {name}\n", Digest::of(&self.read(name))))
            .concat();
        self.write(SUMS, sums.as_bytes());
        self.write(SIGNATURE, sign(SEED, sums.as_bytes()).as_bytes());
    }

    fn verify(&self) -> Result<VerifiedArchive, Failure> {
        self.verify_above("0.5.0")
    }

    fn verify_above(&self, lowest: &str) -> Result<VerifiedArchive, Failure> {
        let options = Options {
            signers: &signers_of(SEED),
            signers_origin: "the test's list",
            lowest: Some(Version::parse(lowest).unwrap()),
        };
        verify_archive(&self.path(ARCHIVE), &options)
    }

    fn failure(&self) -> Failure {
        self.verify().unwrap_err()
    }
}

fn statement(archive: &str, bytes: &[u8]) -> String {
    json!({
        "_type": STATEMENT_TYPE,
        "subject": [{"name": archive, "digest": {"sha256": Digest::of(bytes).to_string()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:example",
                "externalParameters": {},
                "resolvedDependencies": [{"uri": "git", "digest": {"gitCommit": "c0ffee"}}],
            },
            "runDetails": {"builder": {"id": "a builder"}},
        },
    })
    .to_string()
}

#[test]
fn a_signed_release_is_described() {
    let verified = Release::new().verify().unwrap();
    assert_eq!(
        verified.describe().lines().next(),
        Some(
            "vault-0.6.0-x86_64-unknown-linux-gnu.tar.gz is vault 0.6.0 for \
             x86_64-unknown-linux-gnu, as anna@example.com signed it"
        )
    );
    assert_eq!(
        (&*verified.commit, &*verified.builder),
        ("c0ffee", "a builder")
    );
}

#[test]
fn a_change_of_any_byte_of_any_file_is_refused() {
    for name in [ARCHIVE, STATEMENT, SUMS, SIGNATURE] {
        let release = Release::new();
        let original = release.read(name);
        for index in 0..original.len() {
            let mut changed = original.clone();
            changed[index] ^= 1;
            release.write(name, &changed);
            let failure = release.failure();
            assert_eq!(
                failure.code,
                ErrorCode::ProgramNotVerified,
                "{name}, byte {index}: {}",
                failure.message
            );
        }
        release.write(name, &original);
        release.verify().unwrap();
        std::fs::remove_file(release.path(name)).unwrap();
        assert_eq!(
            release.failure().code,
            ErrorCode::ProgramFilesMissing,
            "{name}"
        );
    }
}

#[test]
fn a_statement_about_something_else_is_refused() {
    let other_kind = statement(ARCHIVE, b"the archive").replace("slsa.dev", "example.com");
    let no_commit = statement(ARCHIVE, b"the archive").replace("gitCommit", "sha1");
    for text in [
        statement(ARCHIVE, b"another archive"),
        statement(
            "vault-0.5.9-x86_64-unknown-linux-gnu.tar.gz",
            b"the archive",
        ),
        other_kind,
        no_commit,
        "{}".to_owned(),
    ] {
        let release = Release::new();
        release.write(STATEMENT, text.as_bytes());
        release.sign_files();
        let failure = release.failure();
        assert_eq!(failure.code.exit(), Exit::Integrity, "{text}");
    }
}

#[test]
fn an_older_archive_is_refused_unless_it_is_allowed() {
    let release = Release::new();
    for higher in ["0.6.1", "0.10.0", "1.0.0-rc.1"] {
        let failure = release.verify_above(higher).unwrap_err();
        assert_eq!(failure.code, ErrorCode::ProgramOlder, "{higher}");
    }
    for lower in ["0.6.0", "0.6.0-rc.1", "0.5.9"] {
        release.verify_above(lower).unwrap();
    }
}

#[test]
fn an_archive_of_another_name_is_refused() {
    for name in [
        "vault.tar.gz",
        "vault-0.6-x86_64-unknown-linux-gnu.tar.gz",
        "vault-0.6.0-x86_64-unknown-linux-gnu.zip",
        "vault-0.7.0-x86_64-unknown-linux-gnu.tar.gz",
    ] {
        let release = Release::new();
        release.write(name, b"the archive");
        let options = Options {
            signers: &signers_of(SEED),
            signers_origin: "the test's list",
            lowest: None,
        };
        assert!(
            verify_archive(&release.path(name), &options).is_err(),
            "{name}"
        );
    }
}

#[test]
fn a_list_without_signers_lets_nothing_pass() {
    let release = Release::new();
    let options = Options {
        signers: "# nobody yet\n",
        signers_origin: "the list",
        lowest: None,
    };
    let failure = verify_archive(&release.path(ARCHIVE), &options).unwrap_err();
    assert_eq!(failure.code, ErrorCode::ProgramNotVerified);
}

#[test]
fn the_list_in_this_program_can_be_read() {
    parse_signers(BUILT_IN_SIGNERS, NAMESPACE).unwrap();
}

#[test]
fn a_version_and_a_platform_are_found_in_a_name() {
    for (name, version, platform) in [
        (ARCHIVE, "0.6.0", "x86_64-unknown-linux-gnu"),
        (
            "vault-1.0.0-rc.1-aarch64-apple-darwin.tar.gz",
            "1.0.0-rc.1",
            "aarch64-apple-darwin",
        ),
    ] {
        let (found, on) = parse_name(name).unwrap();
        assert_eq!((&*found.to_string(), &*on), (version, platform));
    }
}

//! `install.sh` with a release that a throwaway key signed.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use super::{PROGRAM, World, installer};
use serde_json::json;
use vault_format::hash::Digest;

use crate::support::{Home, run_program};

/// A checkout with a throwaway signer, and a release of a stub program that this signer signed. Needs
/// `ssh-keygen`, which `tests/run` installs.
struct SignedRelease {
    world: World,
    version: &'static str,
}

impl SignedRelease {
    fn new() -> Self {
        Self::of("9.9.9")
    }

    fn of(version: &'static str) -> Self {
        let release = Self {
            world: World::new(),
            version,
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for file in [
            "install.sh",
            "release/allowed_signers",
            "release/make-key",
            "release/sign",
            "release/pack.py",
            "release/check.py",
            "infra/common.sh",
        ] {
            let copy = release.world.path("checkout").join(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(root.join(file), copy).unwrap();
        }
        release.run("ssh-keygen -q -t ed25519 -N '' -f key");
        release.run("checkout/release/make-key anna@example.com key");
        let program = PROGRAM.replace("9.9.9", version);
        let folder = format!("vault-{version}-{}", platform());
        let home = &release.world.home;
        home.write_executable(&format!("{folder}/vault"), &program);
        home.write(&format!("{folder}/skills/one/SKILL.md"), "x");
        release.run(&format!(
            "mkdir release && tar -czf release/{folder}.tar.gz {folder}"
        ));
        let archive = release.file("tar.gz");
        let digest = Digest::of(&fs::read(release.world.path(&archive)).unwrap());
        let statement = json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{
                "name": archive.trim_start_matches("release/"),
                "digest": {"sha256": digest.to_string()},
            }],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "externalParameters": {"version": version},
                    "resolvedDependencies": [{"digest": {"gitCommit": "c0ffee"}}],
                },
                "runDetails": {"builder": {"id": "urn:test"}},
            },
        });
        home.write(&release.file("provenance.json"), statement.to_string());
        release.run("checkout/release/sign release key");
        release
    }

    fn run(&self, line: &str) {
        let mut shell = self.world.home.command("/bin/sh");
        run_program(shell.args(["-c", line]).current_dir(self.world.path("")));
    }

    /// The path of the archive, or of the statement, in the home folder.
    fn file(&self, suffix: &str) -> String {
        format!("release/vault-{}-{}.{suffix}", self.version, platform())
    }

    /// Installs the release with the signer's script. Returns the exit code and the messages.
    fn install(&self, arguments: &[&str]) -> (Option<i32>, String) {
        self.install_with("checkout/install.sh", arguments, &[])
    }

    fn install_with(
        &self,
        script: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> (Option<i32>, String) {
        let mut command = self.world.home.command("/bin/sh");
        command.arg(self.world.path(script)).args(arguments);
        command.env("VAULT_RELEASES", self.world.path("release"));
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text)
    }

    fn refuses(&self, words: &str) {
        let (code, text) = self.install(&[]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(words), "{text}");
        assert!(!self.world.is_installed(), "{text}");
    }
}

/// The platform of this machine, as archives name it.
pub(super) fn platform() -> &'static str {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", "aarch64") => "aarch64-apple-darwin",
        ("macos", _) => "x86_64-apple-darwin",
        (_, "aarch64") => "aarch64-unknown-linux-gnu",
        _ => "x86_64-unknown-linux-gnu",
    }
}

#[test]
fn a_signed_release_is_installed() {
    let release = SignedRelease::new();
    let (code, text) = release.install(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("signed by anna@example.com"), "{text}");
    assert!(text.contains("installed vault 9.9.9"), "{text}");
    assert!(
        release
            .world
            .path(".local/share/vault/skills/one/SKILL.md")
            .exists()
    );
}

#[test]
fn a_changed_file_of_a_release_is_refused() {
    let release = SignedRelease::new();
    let files = [
        (release.file("tar.gz"), "SHA-256"),
        (release.file("provenance.json"), "SHA-256"),
        ("release/SHA256SUMS".to_owned(), "not signed by a signer"),
        ("release/SHA256SUMS.sig".to_owned(), "SHA256SUMS"),
    ];
    for (file, words) in files {
        let path = release.world.path(&file);
        let original = fs::read(&path).unwrap();
        for index in [0, original.len() / 2, original.len() - 1] {
            let mut changed = original.clone();
            changed[index] ^= 1;
            fs::write(&path, &changed).unwrap();
            release.refuses(words);
        }
        fs::remove_file(&path).unwrap();
        release.refuses("has no");
        fs::write(&path, &original).unwrap();
    }
    assert_eq!(release.install(&[]).0, Some(0));
}

/// `ssh-keygen -Y verify` accepts each of these; nobody signed them.
#[test]
fn a_signature_in_another_form_is_refused() {
    let release = SignedRelease::new();
    let path = release.world.path("release/SHA256SUMS.sig");
    let original = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = original.lines().collect();
    let joined = |with: &str| lines.join(with) + "\n";
    for changed in [
        original.trim_end().to_owned(),
        format!("{original}\n"),
        format!("{original}more"),
        joined("\r\n"),
        original.replacen("AAAAAQAAADM", "AAAAAAAAADM", 1),
        original.replacen(&lines[2][..4], &format!("{}\n", &lines[2][..4]), 1),
    ] {
        assert_ne!(changed, original);
        fs::write(&path, &changed).unwrap();
        release.refuses("not a signature as ssh-keygen writes it");
    }
}

#[test]
fn a_signer_that_is_not_allowed_and_a_list_without_signers_are_refused() {
    let release = SignedRelease::new();
    release.run("ssh-keygen -q -t ed25519 -N '' -f other && rm release/SHA256SUMS.sig && ssh-keygen -q -Y sign -f other -n vault-release release/SHA256SUMS");
    release.refuses("not signed by a signer");
    release.run(
        "rm release/SHA256SUMS.sig && ssh-keygen -q -Y sign -f key -n file release/SHA256SUMS",
    );
    release.refuses("nothing was installed");
    // The script of this checkout names nobody yet.
    let (code, text) = SignedRelease::new().install_with(installer().to_str().unwrap(), &[], &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("names no signer"), "{text}");
}

#[test]
fn an_older_release_replaces_a_newer_one_only_when_told() {
    let release = SignedRelease::of("9.9.8");
    release.world.installed(&[]);
    let (code, text) = release.install(&[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("vault 9.9.8 is older than vault 9.9.9"),
        "{text}"
    );
    assert!(
        release
            .world
            .home
            .read(".local/bin/vault")
            .contains("9.9.9")
    );
    let (code, text) = release.install(&["--allow-older"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        release
            .world
            .home
            .read(".local/bin/vault")
            .contains("9.9.8")
    );
}

#[test]
fn a_later_release_candidate_replaces_an_earlier_one() {
    let release = SignedRelease::of("1.0.0-rc.10");
    let earlier = PROGRAM.replace("9.9.9", "1.0.0-rc.9");
    release.world.home.write_executable("download", &earlier);
    release.world.installed(&[]);
    let (code, text) = release.install(&[]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn only_what_a_statement_names_is_signed() {
    let release = SignedRelease::new();
    let sign = "checkout/release/sign release key";
    for (planted, name) in [
        ("touch release/.DS_Store", "DS_Store"),
        (
            "touch 'release/vault-9.9.9-aarch64-apple-darwin.tar.gz'",
            "no statement names",
        ),
        ("ln -s ../key release/link", "link"),
    ] {
        release.run(planted);
        let mut shell = release.world.home.command("/bin/sh");
        shell.args(["-c", sign]).current_dir(release.world.path(""));
        let output = shell.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && text.contains(name),
            "{planted}: {text}"
        );
        release.run("cd release && rm -f .DS_Store link vault-9.9.9-aarch64-apple-darwin.tar.gz");
    }
    release.run(sign);
}

/// A server that runs keeps the program that it began with: the new one is a file of its own.
#[test]
fn the_program_is_replaced_and_not_overwritten() {
    let release = SignedRelease::new();
    let home = &release.world.home;
    let earlier = PROGRAM.replace("9.9.9", "9.9.8");
    let path = home.write_executable(".local/bin/vault", &earlier);
    let mut running = fs::File::open(&path).unwrap();
    let (code, text) = release.install(&[]);
    assert_eq!(code, Some(0), "{text}");
    let mut kept = String::new();
    running.read_to_string(&mut kept).unwrap();
    assert_eq!(kept, earlier);
    assert!(home.read(".local/bin/vault").contains("9.9.9"));
}

#[test]
fn without_openssh_a_release_needs_a_sha256() {
    let release = SignedRelease::new();
    // A machine whose ssh-keygen knows no `-Y`.
    let old = "#!/bin/sh\necho 'ssh-keygen: unknown option -- Y' >&2\nexit 1\n";
    release.world.home.write_executable("old/ssh-keygen", old);
    let path = format!("{}:/usr/bin:/bin", release.world.path("old").display());
    let archive = fs::read(release.world.path(&release.file("tar.gz"))).unwrap();
    let digest = Digest::of(&archive).to_string();
    let zeros = "0".repeat(64);
    for (sha256, expected, words) in [
        (None, Some(1), "install OpenSSH 8.1"),
        (Some(&zeros), Some(1), "nothing was installed"),
        (Some(&digest), Some(0), "the signature is not checked"),
    ] {
        let mut variables = vec![("PATH", path.as_str())];
        variables.extend(sha256.map(|sha256| ("VAULT_INSTALL_SHA256", sha256.as_str())));
        let (code, text) = release.install_with("checkout/install.sh", &[], &variables);
        assert_eq!(code, expected, "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn the_installer_names_the_signers_of_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = fs::read_to_string(root.join("install.sh")).unwrap();
    let (_, inner) = script.split_once("<<'SIGNERS'\n").unwrap();
    let (inner, _) = inner.split_once("SIGNERS\n").unwrap();
    let list = fs::read_to_string(root.join("release/allowed_signers")).unwrap();
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(inner.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn a_program_that_is_older_than_the_vault_says_so_with_its_version() {
    let home = Home::new();
    home.skill("own", "Use it when somebody asks for it.");
    home.run(&["add", "own"]).ok();
    let file = home.path(".vault/vault.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("vault.library/2", "vault.library/3")).unwrap();
    let version = home.run(&["version"]);
    let warning = version.json["warnings"][0]["message"]
        .as_str()
        .unwrap_or_default();
    assert!(
        warning.contains("not a vault that this version can read"),
        "{}",
        version.out
    );
    assert_eq!(version.ok()["version"], env!("CARGO_PKG_VERSION"));
}

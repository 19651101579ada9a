//! Checks a downloaded release of the program vault, without a network.
//!
//! A release is a folder of files. `SHA256SUMS` lists all others, and a maintainer signs it in
//! OpenSSH's format, so the check needs three files beside the archive: the list, its signature,
//! and the provenance statement of the archive's platform. `install.sh` does the same check with
//! `ssh-keygen` before the first install; `docs/releasing.md` describes the files.

pub mod openssh;

use std::io::Read as _;
use std::path::Path;

use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;

use crate::{errors::Failure, text::clean};

use self::openssh::{find_signer, parse_signers};

/// The namespace of the signatures, so that a signature for another purpose does not count.
pub const NAMESPACE: &str = "vault-release";
/// The maintainers whose signatures count, as this program was built. Empty until one has a key.
pub const BUILT_IN_SIGNERS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../release/allowed_signers"
));

const SUMS: &str = "SHA256SUMS";
const SIGNATURE: &str = "SHA256SUMS.sig";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// The most bytes that are read of the list, the signature and the statement.
const MAX_TEXT: u64 = 1024 * 1024;
/// The most bytes of an archive. One has about 12 MB.
const MAX_ARCHIVE: u64 = 512 * 1024 * 1024;

/// A release archive that passed the check.
#[derive(Debug, JsonSchema, Serialize)]
pub struct VerifiedArchive {
    /// The name of the archive.
    archive: String,
    /// SHA-256 of the archive.
    sha256: String,
    /// The version of the program in it.
    version: String,
    /// The platform that it runs on, such as `x86_64-unknown-linux-gnu`.
    platform: String,
    /// The maintainer who signed the list of checksums.
    signer: String,
    /// The commit that the program was built from, as the signed provenance statement says.
    commit: String,
    /// Where it was built, as the signed provenance statement says.
    builder: String,
}

impl VerifiedArchive {
    /// Formats the result for people.
    pub fn describe(&self) -> String {
        format!(
            "{} is vault {} for {}, as {} signed it\nbuilt from commit {} by {}\nSHA-256 {}",
            self.archive,
            self.version,
            self.platform,
            clean(&self.signer, 100),
            clean(&self.commit, 64),
            clean(&self.builder, 200),
            self.sha256,
        )
    }
}

/// Options of [`verify_archive`].
#[derive(Debug)]
pub struct Options<'a> {
    /// The list of allowed signers, in the format of `ssh-keygen -Y verify`.
    pub signers: &'a str,
    /// Where the list of signers is from, for messages.
    pub signers_origin: &'a str,
    /// The version of the installed program, below which an archive is refused; `None` accepts any
    /// version.
    pub lowest: Option<Version>,
}

/// Checks an archive and the files beside it. Returns facts that are all signed.
pub fn verify_archive(path: &Path, options: &Options<'_>) -> Result<VerifiedArchive, Failure> {
    let signers = parse_signers(options.signers, NAMESPACE)
        .map_err(|error| fail!(Usage, "{}: {error}", options.signers_origin))?;
    if signers.is_empty() {
        return Err(fail!(
            ProgramNotVerified,
            "{} names no signer, so no signature can count",
            options.signers_origin
        )
        .hint("`--signers <file>` names the signers whom you trust"));
    }
    let name = archive_name(path)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let sums = read_text(&folder.join(SUMS))?;
    let signature = read_text(&folder.join(SIGNATURE))?;
    let signer = find_signer(&signature, sums.as_bytes(), NAMESPACE, &signers)
        .ok_or_else(|| not_signed(options))?;
    let sums = Checksums::parse(&sums)?;
    let (version, platform) = parse_name(&name)?;
    let sha256 = sums.check(&name, &read_bytes(path, MAX_ARCHIVE)?)?;
    let statement_name = format!("vault-{version}-{platform}.provenance.json");
    let statement = read_text(&folder.join(&statement_name))?;
    sums.check(&statement_name, statement.as_bytes())?;
    let build = Statement::parse(&statement, &statement_name)?.build_of(&name, sha256)?;
    if let Some(lowest) = options.lowest.as_ref().filter(|lowest| version < **lowest) {
        return Err(fail!(
            ProgramOlder,
            "{name} is older than vault {lowest}, which is installed"
        )
        .hint("`--allow-older` accepts it"));
    }
    Ok(VerifiedArchive {
        archive: name,
        sha256: sha256.to_string(),
        version: version.to_string(),
        platform,
        signer: signer.principal.clone(),
        commit: build.0,
        builder: build.1,
    })
}

fn not_signed(options: &Options<'_>) -> Failure {
    fail!(
        ProgramNotVerified,
        "{SIGNATURE} is not a signature of {SUMS} by a signer of {}",
        options.signers_origin
    )
    .hint("do not install it; download the release again from a place that you trust")
}

fn archive_name(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned)
        .ok_or_else(|| fail!(Usage, "{} is not the path of an archive", path.display()))
}

/// Takes version and platform from a name such as `vault-0.5.0-x86_64-unknown-linux-gnu.tar.gz`.
fn parse_name(name: &str) -> Result<(Version, String), Failure> {
    let parts = name
        .strip_prefix("vault-")
        .and_then(|rest| rest.strip_suffix(".tar.gz"))
        // A platform begins with its processor; a pre-release may contain hyphens too.
        .and_then(|rest| {
            let start = ["-x86_64-", "-aarch64-"]
                .iter()
                .find_map(|p| rest.find(p))?;
            Some((&rest[..start], &rest[start + 1..]))
        })
        .and_then(|(version, platform)| Some((Version::parse(version).ok()?, platform.to_owned())));
    parts.ok_or_else(|| {
        fail!(
            Usage,
            "the name of a release archive is vault-<version>-<platform>.tar.gz, not {name}"
        )
        .hint("keep the name under which you downloaded it")
    })
}

/// Reads a regular file of at most `limit` bytes.
fn read_bytes(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    // A pipe or device would block, or never end.
    let metadata = std::fs::metadata(path).map_err(|error| missing(path, &error))?;
    if !metadata.is_file() {
        return Err(fail!(NotAFile, "{} is not a file", path.display()));
    }
    let file = std::fs::File::open(path).map_err(|error| missing(path, &error))?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| missing(path, &error))?;
    if bytes.len() as u64 > limit {
        return Err(fail!(
            ProgramNotVerified,
            "{} is larger than {limit} bytes, the most that a file of a release has",
            path.display()
        ));
    }
    Ok(bytes)
}

fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_bytes(path, MAX_TEXT)?)
        .map_err(|_| fail!(ProgramNotVerified, "{} is not text", path.display()))
}

fn missing(path: &Path, error: &std::io::Error) -> Failure {
    fail!(
        ProgramFilesMissing,
        "{} cannot be read: {error}",
        path.display()
    )
    .hint("download SHA256SUMS, SHA256SUMS.sig and the .provenance.json into the archive's folder")
}

/// The checksums of a release, by file name.
struct Checksums(Vec<(Digest, String)>);

impl Checksums {
    /// Reads lines as `sha256sum` writes them.
    fn parse(text: &str) -> Result<Self, Failure> {
        let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
        let rows = lines.map(|line| {
            let (digest, name) = line.split_once("  ")?;
            Some((digest.parse().ok()?, name.to_owned()))
        });
        rows.collect::<Option<Vec<_>>>().map(Self).ok_or_else(|| {
            fail!(
                ProgramNotVerified,
                "a line of {SUMS} is not a SHA-256, two spaces and a name"
            )
        })
    }

    /// Compares a file with its checksum, which the list must name once. Returns the checksum.
    fn check(&self, name: &str, bytes: &[u8]) -> Result<Digest, Failure> {
        let mut digests = self.0.iter().filter(|row| row.1 == name).map(|row| row.0);
        let (Some(expected), None) = (digests.next(), digests.next()) else {
            return Err(
                fail!(ProgramNotVerified, "{SUMS} does not list {name} once")
                    .hint("keep the name under which you downloaded it"),
            );
        };
        let actual = Digest::of(bytes);
        if actual != expected {
            return Err(fail!(
                ProgramNotVerified,
                "{name} has the SHA-256 {actual}, and {SUMS} says {expected}"
            )
            .hint("do not install it; download it again"));
        }
        Ok(actual)
    }
}

/// The parts of an in-toto statement with SLSA provenance that are compared or shown.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    predicate_type: String,
    subject: Vec<Subject>,
    predicate: Predicate,
}

#[derive(Deserialize)]
struct Subject {
    name: String,
    digest: Digests,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Digests {
    sha256: Option<String>,
    git_commit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    build_definition: BuildDefinition,
    run_details: RunDetails,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuildDefinition {
    resolved_dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    digest: Digests,
}

#[derive(Deserialize)]
struct RunDetails {
    builder: Builder,
}

#[derive(Deserialize)]
struct Builder {
    id: String,
}

impl Statement {
    fn parse(text: &str, name: &str) -> Result<Self, Failure> {
        let statement: Self = serde_json::from_str(text)
            .map_err(|error| fail!(ProgramNotVerified, "{name}: {error}"))?;
        if statement.kind != STATEMENT_TYPE || statement.predicate_type != PREDICATE_TYPE {
            return Err(fail!(
                ProgramNotVerified,
                "{name} is not an in-toto statement with SLSA provenance"
            ));
        }
        Ok(statement)
    }

    /// Returns commit and builder. Fails unless the statement is about this archive.
    fn build_of(self, archive: &str, sha256: Digest) -> Result<(String, String), Failure> {
        let sha256 = sha256.to_string();
        let named = self.subject.iter().any(|subject| {
            subject.name == archive && subject.digest.sha256.as_ref() == Some(&sha256)
        });
        let dependencies = self.predicate.build_definition.resolved_dependencies;
        let commit = dependencies.into_iter().find_map(|d| d.digest.git_commit);
        match commit {
            Some(commit) if named => Ok((commit, self.predicate.run_details.builder.id)),
            _ => Err(fail!(
                ProgramNotVerified,
                "the provenance statement does not name {archive} and its commit"
            )),
        }
    }
}

/// The signers to use: those of a file, else those that the program was built with. Returns their
/// text and a name for messages.
pub fn load_signers(file: Option<&Path>) -> Result<(String, String), Failure> {
    match file {
        Some(path) => Ok((read_text(path)?, path.display().to_string())),
        None => Ok((
            BUILT_IN_SIGNERS.to_owned(),
            "the list of signers in this program".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests;

//! Exceptions to the gate, vault's scanner: findings that the signer of a skill accepted with a
//! reason. The manifest binds each exception to the digest of a file; this module finds the files
//! of that digest.

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{manifest::Manifest, path::FilePath};

use crate::output::{BOLD, clean, join};

/// An exception that the signer of a skill made for the bytes of a file.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SkillException {
    /// The rule that does not count.
    rule: String,
    /// The files of the skill with these bytes.
    files: Vec<FilePath>,
    /// The reason, in the signer's words.
    reason: String,
}

/// Returns the exceptions in the manifest of a signed skill.
pub fn exceptions_of(manifest: &Manifest) -> Vec<SkillException> {
    let exceptions = manifest.gate.waivers.iter().map(|waiver| {
        let same_bytes = |file: &&vault_format::manifest::FileEntry| file.sha256 == waiver.sha256;
        let files = manifest.files.iter().filter(same_bytes);
        SkillException {
            rule: waiver.rule.clone(),
            files: files.map(|file| file.path.clone()).collect(),
            reason: waiver.reason.clone(),
        }
    });
    exceptions.collect()
}

impl SkillException {
    /// Formats the exception as a line: the rule, the files and the reason.
    pub fn to_line(&self) -> String {
        let (rule, files) = (clean(&self.rule, 80), clean(&join(&self.files), 300));
        format!(
            "{BOLD}{rule}{BOLD:#} in {files}: {}",
            clean(&self.reason, 400)
        )
    }
}

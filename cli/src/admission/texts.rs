//! Findings as compilers show them, in the text of files that may lie on the disk or only in memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vault_library::admit::Source;
use vault_skill::{
    finding::{Finding, printable},
    gate::RawFile,
    report::{Excerpt, decode},
};

use crate::{
    context::Context,
    lookup::folder_of,
    output::{Warning, clean, finding},
};

/// Largest file that is kept to be quoted, in bytes.
const MOST: usize = 256 << 10;

/// The text of a skill's files.
pub struct Texts {
    base: PathBuf,
    /// Of a fetched skill; otherwise the disk is read.
    files: Option<HashMap<String, String>>,
}

impl Texts {
    /// Those of a source that is called this in messages.
    pub fn of_source(shown: &str, source: &Source) -> Self {
        match source {
            Source::Fetched(skill) => Self::of_fetched(shown, &skill.files),
            Source::Text { files, .. } => Self::of_fetched(shown, files),
            Source::Folder(folder) => Self::of_folder(folder),
            Source::Earlier(_) => Self::of_fetched(shown, &[]),
        }
    }

    /// Those of a folder of this machine, or of the folder that a SKILL.md stands in.
    pub fn of_folder(source: &str) -> Self {
        Self {
            base: folder_of(Path::new(source)),
            files: None,
        }
    }

    /// Those of a fetched skill.
    pub fn of_fetched(shown: &str, files: &[RawFile]) -> Self {
        let texts = files
            .iter()
            .filter(|file| file.bytes.len() <= MOST)
            .map(|file| (file.path.clone(), decode(&file.bytes).into_owned()));
        Self {
            base: PathBuf::from(shown),
            files: Some(texts.collect()),
        }
    }

    fn path(&self, inner: &str) -> String {
        let path = if inner.is_empty() {
            self.base.clone()
        } else {
            self.base.join(inner)
        };
        clean(&printable(&path.display().to_string()), 300)
    }

    fn line(&self, finding: &Finding) -> Option<Excerpt> {
        match &self.files {
            Some(files) => {
                let text = files.get(&finding.path)?;
                Excerpt::of(text, finding.line?, finding.column)
            }
            None => finding::excerpt_on_disk(&self.base.join(&finding.path), finding),
        }
    }

    /// A finding as compilers show them: the rule, the place, the line of the file, and what mends it.
    pub fn excerpt(&self, finding: &Finding) -> String {
        let line = self.line(finding);
        finding::render(&self.path(&finding.path), finding, line.as_ref())
    }

    /// Warnings of the gate about a skill that was admitted.
    pub fn warn(&self, context: &Context, findings: &[Finding]) {
        for finding in findings {
            context.ui.warn(Warning {
                code: finding.rule.to_owned(),
                message: finding.message.clone(),
                hint: Some(finding.hint.clone()).filter(|hint| !hint.is_empty()),
                path: Some(self.path(&finding.path)),
                line: finding.line,
            });
        }
    }
}

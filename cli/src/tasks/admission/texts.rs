//! Renders findings with excerpts of the files that they concern. A skill's files are on disk
//! (local folders) or in memory (fetched skills).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use vault_format::text::printable;
use vault_gate::{
    RawFile,
    finding::{Finding, Level},
    report::{Excerpt, decode_text},
};
use vault_library::admit::Source;

use crate::{
    context::Context,
    lookup::folder_of,
    output::{Warning, clean, finding},
};

/// Largest file kept in memory for excerpts, in bytes.
const MOST: usize = 256 << 10;

/// The texts of a skill's files, for excerpts.
pub struct Texts {
    base: PathBuf,
    /// Texts of a fetched skill's files, by path in the skill. `None` means that excerpts are read
    /// from disk.
    files: Option<HashMap<String, String>>,
}

impl Texts {
    /// Creates the texts of a source; `shown` is its name in messages.
    pub fn of_source(shown: &str, source: &Source) -> Self {
        match source {
            Source::Fetched(skill) => Self::of_fetched(shown, &skill.files),
            Source::Text { files, .. } => Self::of_fetched(shown, files),
            Source::Folder(_) | Source::FolderBelow { .. } => {
                Self::of_folder(&source.folder_path().unwrap_or_default().to_string_lossy())
            }
            Source::InProject { project, path } => {
                Self::of_folder(&project.path().join(path).to_string_lossy())
            }
            Source::InVault { vault, path } => Self::of_folder(&vault.join(path).to_string_lossy()),
            // The files of an earlier version are in the store and not at a path that could be
            // quoted.
            Source::Earlier(_) => Self::of_fetched(shown, &[]),
        }
    }

    /// Creates the texts of a local folder. `source` is the folder or its SKILL.md.
    pub fn of_folder(source: &str) -> Self {
        Self {
            base: folder_of(Path::new(source)),
            files: None,
        }
    }

    /// Creates the texts of a fetched skill. Files over 256 KiB are left out.
    pub fn of_fetched(shown: &str, files: &[RawFile]) -> Self {
        let texts = files
            .iter()
            // A huge file would stay in memory only for one line of it.
            .filter(|file| file.bytes.len() <= MOST)
            .map(|file| (file.path.clone(), decode_text(&file.bytes).into_owned()));
        Self {
            base: PathBuf::from(shown),
            files: Some(texts.collect()),
        }
    }

    fn display_path(&self, inner: &str) -> String {
        let path = match inner {
            "" => self.base.clone(),
            inner => self.base.join(inner),
        };
        // The path comes from the skill, so it must not be able to control the terminal.
        clean(&printable(&path.display().to_string()), 300)
    }

    fn excerpt_line(&self, finding: &Finding) -> Option<Excerpt> {
        match &self.files {
            Some(files) => {
                let text = files.get(&finding.path)?;
                Excerpt::of(text, finding.line?, finding.column)
            }
            None => finding::excerpt_on_disk(&self.base.join(&finding.path), finding),
        }
    }

    /// Renders a finding in the style of compiler diagnostics: the rule, the location, the line of
    /// the file and the fix.
    pub fn render_finding(&self, finding: &Finding) -> String {
        let line = self.excerpt_line(finding);
        finding::render_finding(&self.display_path(&finding.path), finding, line.as_ref())
    }

    /// Prints the gate's warnings about an admitted skill.
    pub fn warn_about_findings(&self, context: &Context, findings: &[Finding]) {
        let all = context.ui.is_verbose();
        for finding in findings
            .iter()
            .filter(|finding| all || finding.level > Level::Note)
        {
            context.ui.warn(Warning {
                code: finding.rule.to_owned(),
                message: finding.message.clone(),
                hint: Some(finding.hint.clone()).filter(|hint| !hint.is_empty()),
                path: Some(self.display_path(&finding.path)),
                line: finding.line,
            });
        }
    }
}

//! The review of another person's change before this machine signs it or takes it over. It shows
//! every difference and the findings of this machine's gate (scanner), and binds the answer to the
//! hash of exactly what was shown.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use vault_format::{
    bundle::File,
    catalog::{
        ChangeKind, ChangeLine, PolicyEntry, ProfileEntry, RootChanges, SkillEntry, Withdrawn,
    },
    hash::Digest,
    name::SkillName,
    time::Timestamp,
};
use vault_gate::finding::Finding;
use vault_library::{
    adopt::{self, Exceptions},
    publish::{CheckedSkill, ReleaseChange, Reviewed},
};

use super::Publisher;
use crate::{
    context::Context,
    errors::Failure,
    output::{
        BAD, BOLD, DIM, GOOD, Ui, WARN, count,
        diff::{Detail, FileChange, RenderedDiff, by_path, diff_files, diff_texts, file_changes},
        finding, paint,
    },
    tasks::admission::require_reason,
    text::clean,
};

/// How a review is shown, and what answers it.
#[derive(Args, Clone, Debug, Default)]
pub struct ReviewFlags {
    /// Show every changed line, however many there are
    #[arg(long)]
    pub full: bool,
    /// Write both versions of all changed files to this new folder: DIR/before and DIR/after
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

impl ReviewFlags {
    /// Returns `Full` with `--full`, else `Screen`.
    pub const fn detail_level(&self) -> Detail {
        if self.full {
            Detail::Full
        } else {
            Detail::Screen
        }
    }
}

/// How the release of another publisher is reviewed, and what answers the review.
#[derive(Args, Clone, Debug, Default)]
pub struct ReleaseReview {
    #[command(flatten)]
    pub flags: ReviewFlags,
    /// Accept without a question, but only this payload of another publisher, which you have read
    #[arg(long, value_name = "SHA256")]
    pub payload: Option<Digest>,
    /// Let findings of this rule pass in what you accept; repeatable
    #[arg(long = "allow", value_name = "RULE")]
    pub allow: Vec<String>,
    /// The reason, signed with the exception
    #[arg(long, value_name = "TEXT", requires = "allow")]
    pub reason: Option<String>,
}

impl ReleaseReview {
    /// Returns the exceptions to the gate that the options allow. Asks for a missing reason on a
    /// terminal.
    pub fn exceptions(&self, context: &Context) -> Result<Exceptions, Failure> {
        Ok(Exceptions {
            strict: context.is_strict()?,
            allow: self.allow.clone(),
            reason: require_reason(context, &self.allow, self.reason.as_deref())?,
        })
    }
}

/// A release, compared with the newest one that this machine accepted before, for a person to
/// review.
pub struct Review {
    /// The comparison as lines for people.
    pub shown: RenderedDiff,
    /// The comparison as data for `--json`.
    pub difference: ReleaseDifference,
    reviewed: Reviewed,
    policy: Option<(String, String)>,
    /// Objects fetched for the review, by SHA-256. Taking over the release needs them again.
    pub fetched: HashMap<Digest, Vec<u8>>,
}

/// The differences of a release from the one that counted last on this machine.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ReleaseDifference {
    /// Number of the release under review.
    release: u64,
    /// The release that it is compared with; null if this machine has taken over none.
    after: Option<u64>,
    /// Names of the new skills.
    added: Vec<SkillName>,
    /// Names of the changed skills.
    updated: Vec<SkillName>,
    /// Names of the removed skills.
    removed: Vec<SkillName>,
    /// Whether the capability policy differs.
    policy: bool,
    /// The lines of the policy that differ; null if it does not.
    policy_difference: Option<Vec<String>>,
    /// Profiles that are new or differ.
    profiles: Vec<ProfileEntry>,
    /// Names of profiles that only the earlier release has.
    lost_profiles: Vec<String>,
    /// Bundles that this release withdraws and the earlier one does not.
    withdrawn: Vec<Withdrawn>,
    /// Bundles that the earlier release withdraws and this one does not.
    no_longer_withdrawn: Vec<Withdrawn>,
    /// Addresses that may serve this release and not the earlier one.
    audience: Vec<String>,
    /// Addresses that may serve the earlier release and not this one.
    lost_audience: Vec<String>,
    /// The differences of the keys from those of the release before; null if there are none.
    roots: Option<RootChanges>,
    /// When the release under review stops being valid, in UTC.
    expires_at: Timestamp,
    /// All differences in words, one a line.
    changes: Vec<String>,
    /// The new and changed skills, with the findings of this machine's gate.
    findings: Vec<SkillDifference>,
}

/// A new or changed skill of a release.
#[derive(Debug, JsonSchema, Serialize)]
struct SkillDifference {
    /// Name of the skill in the release.
    skill: SkillName,
    /// The agent for which it was rendered; null for the plain skill.
    rendered_for: Option<String>,
    /// The differences of its manifest in words, one a line.
    changes: Vec<String>,
    /// Findings of the gate, none of which blocks.
    findings: Vec<Finding>,
    /// The files that were added, changed or removed.
    files: Vec<FileChange>,
}

impl Publisher<'_> {
    /// Fetches the changed objects of a release, verifies them, runs this machine's gate on them,
    /// and describes every difference.
    pub async fn review_release(
        &self,
        change: &ReleaseChange,
        exceptions: &Exceptions,
        flags: &ReviewFlags,
    ) -> Result<Review, Failure> {
        let needed = change.needed_objects(self.vault())?;
        let mut fetched = self.fetch_own(&needed.skills).await?;
        fetched.extend(self.fetch_objects("bundles", &needed.objects).await?);
        fetched.extend(self.fetch_former(&needed.former).await);
        for hash in &needed.former_objects {
            // An earlier profile that cannot be fetched is no failure: the whole profile then
            // counts as new.
            if let Ok(former) = self.fetch_objects("bundles", &[*hash]).await {
                fetched.extend(former);
            }
        }
        // Only the fetched profiles tell which rendered variants exist, so fetch in two steps.
        let (variants, former) = change.needed_variants(&|hash| fetched.get(hash).cloned())?;
        fetched.extend(self.fetch_own(&variants).await?);
        fetched.extend(self.fetch_former(&former).await);
        let policy = self.policy_texts(change, &mut fetched).await?;
        let reviewed =
            change.verify_content(self.vault(), exceptions, &|hash| fetched.get(hash).cloned())?;
        let trust = self.vault().require_trust()?;
        let changes = change.changes.describe_lines(Some(trust.chain()));
        let mut review = Review {
            shown: RenderedDiff::default(),
            difference: difference(change, &changes, &reviewed, policy.as_ref()),
            reviewed,
            policy,
            fetched,
        };
        review.shown = review.review_lines(change, &changes, flags.detail_level());
        // Write the files only after the check, so that all of them are verified.
        if let Some(folder) = &flags.out {
            review.write_sides(folder)?;
        }
        Ok(review)
    }

    /// Fetches earlier versions for the comparison. If the service no longer has one, it is left
    /// out, and all files of the skill are shown as new.
    async fn fetch_former(&self, entries: &[SkillEntry]) -> HashMap<Digest, Vec<u8>> {
        let mut fetched = HashMap::new();
        for entry in entries {
            let former = self.fetch_own(std::slice::from_ref(entry)).await;
            fetched.extend(former.unwrap_or_default());
        }
        fetched
    }

    async fn policy_texts(
        &self,
        change: &ReleaseChange,
        fetched: &mut HashMap<Digest, Vec<u8>>,
    ) -> Result<Option<(String, String)>, Failure> {
        let Some((before, after)) = change.changes.policy else {
            return Ok(None);
        };
        let entries = before.iter().chain(&after);
        let hashes: Vec<_> = entries.map(|entry| entry.sha256).collect();
        fetched.extend(self.fetch_objects("policies", &hashes).await?);
        let text = |entry: Option<PolicyEntry>| {
            entry.map_or(Ok(String::new()), |entry| {
                adopt::policy_text(&entry, &|hash| fetched.get(hash).cloned())
            })
        };
        Ok(Some((text(before)?, text(after)?)))
    }
}

impl Review {
    fn review_lines(
        &self,
        change: &ReleaseChange,
        changes: &[ChangeLine],
        detail: Detail,
    ) -> RenderedDiff {
        let mut shown = RenderedDiff::default();
        let lines = &mut shown.lines;
        match change.changes.from {
            Some(from) => lines.push(format!("  {DIM}compared with release {from}{DIM:#}")),
            None => lines.push(format!(
                "  {DIM}this machine has taken over no release yet, so everything is new{DIM:#}"
            )),
        }
        lines.extend(change.signers.iter().map(change_line));
        if let Some(roots) = &change.roots {
            lines.extend(roots.describe_lines().iter().map(change_line));
        }
        lines.extend(changes.iter().map(change_line));
        lines.extend(self.reviewed.profiles.iter().map(change_line));
        for skill in &self.reviewed.skills {
            shown.add_difference(skill_lines(skill, detail));
        }
        if let Some((before, after)) = &self.policy {
            shown.lines.push(paint(BOLD, "\nchanged policy"));
            shown.add_difference(diff_texts(before.as_bytes(), after.as_bytes(), detail));
        }
        shown
    }

    /// Writes the files of both sides below a new folder.
    fn write_sides(&self, folder: &Path) -> Result<(), Failure> {
        // An agent id cannot contain a path separator, so the name stays one path component.
        let names: Vec<String> = self
            .reviewed
            .skills
            .iter()
            .map(|skill| match &skill.rendered_for {
                Some(agent) => format!("{}.{}", skill.name, clean(agent, 64)),
                None => skill.name.to_string(),
            })
            .collect();
        let mut sides: Vec<(&str, &str, &[File])> = Vec::new();
        for (skill, name) in self.reviewed.skills.iter().zip(&names) {
            sides.push(("before", name, &skill.before));
            sides.push(("after", name, &skill.files));
        }
        for (name, files) in &self.reviewed.removed {
            sides.push(("before", name.as_str(), files));
        }
        write_sides(folder, &sides)?;
        if let Some((before, after)) = &self.policy {
            for (side, text) in [("before", before), ("after", after)] {
                let path = folder.join(side).join("policy.toml");
                write_file(&path, text.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Writes sets of files as `<folder>/<side>/<name>/…`. `folder` must not exist yet. No file is
/// executable, because they are only for reading.
pub fn write_sides(folder: &Path, sides: &[(&str, &str, &[File])]) -> Result<(), Failure> {
    // The folder must be new: a file that is already there could be mistaken for a reviewed one.
    fs::create_dir(folder)
        .map_err(|error| fail!(Io, "cannot create {}: {error}", folder.display()))?;
    for (side, name, files) in sides {
        for file in *files {
            let path = folder.join(side).join(name).join(file.path.as_str());
            write_file(&path, &file.bytes)?;
        }
    }
    Ok(())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|error| fail!(Io, "cannot write {}: {error}", path.display()))
}

impl Ui {
    /// Shows another person's change, and asks whether to sign it or take it over. `--yes` does not
    /// answer this question. Without a terminal, the command line must name the hash of the change
    /// (`given`), which shows that the user has reviewed it elsewhere.
    pub fn confirm_review(
        &self,
        shown: &RenderedDiff,
        question: &Question<'_>,
        given: Option<&Digest>,
        flags: &ReviewFlags,
    ) -> Result<(), Failure> {
        for line in &shown.lines {
            self.must_see(line);
        }
        // The user has named the hash and thus read the change elsewhere, so parts that are hidden
        // here do not matter.
        if question.is_answered_by(given)? {
            return Ok(());
        }
        let Question {
            text,
            effects,
            hash,
            flag,
        } = question;
        if !self.may_ask() {
            return Err(fail!(
                ReviewNeeded,
                "somebody else made this, and nobody has reviewed it here: {hash}"
            )
            .hint(format!(
                "run it on a terminal, or, after reading it, with `{flag} {hash}`"
            ))
            .data(question.answer_data()));
        }
        // A yes covers the whole change, so nothing may be hidden unless it was written to files.
        if shown.hidden > 0 && flags.out.is_none() {
            let hidden = count(shown.hidden as u64, "place");
            return Err(fail!(
                ReviewNeeded,
                "{hidden} of the change {} not shown",
                if shown.hidden == 1 { "was" } else { "were" }
            )
            .hint("run it again with --full, or with --out DIR to have both versions as files"));
        }
        for effect in *effects {
            self.must_see(format!("  {effect}"));
        }
        // `--yes` does not count here, or a script would accept whatever the service shows.
        if self.confirm_in_person(text)? {
            return Ok(());
        }
        Err(fail!(NotConfirmed, "nothing was changed"))
    }
}

/// The question at the end of a review.
pub struct Question<'a> {
    pub text: &'a str,
    /// What a yes does, one effect per line.
    pub effects: &'a [String],
    /// SHA-256 of exactly what was shown.
    pub hash: &'a Digest,
    /// The flag, or the whole command up to it, with which the user names this hash.
    pub flag: &'a str,
}

impl Question<'_> {
    /// Returns whether the hash on the command line answers the question. Fails if it is another
    /// hash.
    pub fn is_answered_by(&self, given: Option<&Digest>) -> Result<bool, Failure> {
        let Self { hash, flag, .. } = self;
        match given {
            None => Ok(false),
            Some(given) if given == *hash => Ok(true),
            Some(given) => {
                let message = format!("this is {hash}, and {flag} names {given}: nothing was done");
                Err(fail!(ReviewNeeded, "{message}")
                    .hint("read what is shown, and compare the hash with its author")
                    .data(self.answer_data()))
            }
        }
    }

    /// Returns the flag and the hash as JSON, for a program that answers with them later.
    fn answer_data(&self) -> Value {
        // The flag may be a whole command, but programs need only its last word.
        let flag = self.flag.rsplit(' ').next();
        json!({ "flag": flag, "sha256": self.hash })
    }
}

/// Formats a line of a difference with the mark of its kind: `+`, `~`, `-` or `!`.
pub fn change_line(line: &ChangeLine) -> String {
    let text = &line.text;
    match line.kind {
        ChangeKind::Added => format!("{GOOD}+{GOOD:#} {text}"),
        ChangeKind::Changed => format!("{WARN}~{WARN:#} {text}"),
        ChangeKind::Removed => format!("{BAD}-{BAD:#} {text}"),
        ChangeKind::Warning => format!("{WARN}! {text}{WARN:#}"),
    }
}

fn skill_lines(skill: &CheckedSkill, detail: Detail) -> RenderedDiff {
    let rendered = skill.rendered_for.as_ref();
    let rendered = rendered.map_or_else(String::new, |agent| {
        format!(", rendered for {}", clean(agent, 64))
    });
    let number = count(skill.findings.len() as u64, "finding");
    let mut shown = RenderedDiff::default();
    shown.lines.push(format!(
        "\n{BOLD}{}{BOLD:#}{rendered}  {DIM}the gate has {number}{DIM:#}",
        skill.name
    ));
    let findings = skill.findings.iter();
    let findings = findings.map(|it| finding::render_line(it.path.as_str(), it));
    shown.lines.extend(findings);
    shown.lines.extend(skill.lines.iter().map(change_line));
    shown.add_difference(diff_files(
        &by_path(&skill.before),
        &by_path(&skill.files),
        detail,
    ));
    shown
}

fn difference(
    change: &ReleaseChange,
    lines: &[ChangeLine],
    reviewed: &Reviewed,
    policy: Option<&(String, String)>,
) -> ReleaseDifference {
    let changes = change.changes.clone();
    let names = |entries: Vec<SkillEntry>| entries.into_iter().map(|entry| entry.name).collect();
    let text = |line: &ChangeLine| line.text.clone();
    let all = change.signers.iter().chain(lines).chain(&reviewed.profiles);
    let skills = reviewed.skills.iter().map(|skill| SkillDifference {
        skill: skill.name.clone(),
        rendered_for: skill.rendered_for.clone(),
        changes: skill.lines.iter().map(text).collect(),
        findings: skill.findings.clone(),
        files: file_changes(&by_path(&skill.before), &by_path(&skill.files)),
    });
    ReleaseDifference {
        release: change.catalog.release,
        after: changes.from,
        added: names(changes.added),
        updated: names(changes.changed.into_iter().map(|(_, new)| new).collect()),
        removed: names(changes.removed),
        policy: changes.policy.is_some(),
        policy_difference: policy.map(|(before, after)| {
            diff_texts(before.as_bytes(), after.as_bytes(), Detail::Full).plain_lines()
        }),
        profiles: changes.profiles,
        lost_profiles: changes.lost_profiles,
        withdrawn: changes.withdrawn,
        no_longer_withdrawn: changes.lifted,
        audience: changes.audience,
        lost_audience: changes.lost_audience,
        roots: change.roots.clone(),
        expires_at: changes.expires_at.1,
        changes: all.map(text).collect(),
        findings: skills.collect(),
    }
}

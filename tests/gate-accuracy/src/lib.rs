//! The gate measured on labelled skills: what it blocks, what it warns of, which rule says so, and how long it takes.
//!
//! Only what the scanner says counts: a skill that is refused for its shape (no frontmatter, say) is neither a detection
//! nor a false alarm here. Nothing of a skill is ever executed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use vault_format::manifest::Mode;
use vault_gate::{self as gate, Finding, GateOptions, Level, RawFile};

/// Where the labelled skills lie, seen from this crate.
pub const CORPORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpora");

/// A labelled skill and what the gate said.
#[derive(Debug)]
pub struct Skill {
    /// Its id in the table.
    pub id: String,
    /// `benign`, `malicious` or `suspicious`.
    pub label: String,
    /// Where it comes from, as the table groups it.
    pub tier: String,
    /// Words for the kind of attack.
    pub categories: String,
    /// Near copies share one.
    pub family: String,
    /// What the scanner found.
    pub findings: Vec<Finding>,
    /// The structure passes, or breaks by this rule.
    pub shape: Option<&'static str>,
    /// Whether its frontmatter can be read.
    pub readable: bool,
    /// Time of the whole gate, in microseconds: the best of three runs.
    pub micros: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl Skill {
    /// Whether the scanner blocks it.
    pub fn is_blocked(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.level == Level::Flag)
    }

    /// Whether the scanner says anything.
    pub fn is_said(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Whether it is a real skill of a vendor or a registry, and benign.
    pub fn is_real(&self) -> bool {
        self.label == "benign" && matches!(self.tier.as_str(), "curated" | "wild" | "wild-zh")
    }

    /// Which third of the families it belongs to: 0, 1 or 2.
    pub fn third(&self) -> u64 {
        let hash = self
            .family
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        (hash >> 17) % 3
    }
}

/// Unpacks the archive into a folder; says what went wrong.
pub fn unpack(into: &Path) -> Result<(), String> {
    let archive = format!("{CORPORA}/dev.tar.zst");
    let mut zstd = Command::new("zstd")
        .args(["-dc", &archive])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("zstd does not start: {error}"))?;
    let stream = zstd.stdout.take().ok_or("zstd has no output")?;
    let tar = Command::new("tar")
        .args(["-xf", "-", "-C"])
        .arg(into)
        .stdin(stream)
        .status()
        .map_err(|error| format!("tar does not start: {error}"))?;
    let zstd = zstd.wait().map_err(|error| error.to_string())?;
    if tar.success() && zstd.success() {
        Ok(())
    } else {
        Err(format!("{archive} cannot be unpacked"))
    }
}

/// Gates every labelled skill of an unpacked archive.
#[expect(
    clippy::disallowed_methods,
    reason = "the time that the gate takes is what is measured"
)]
pub fn measure(folder: &Path, runs: usize) -> Result<Vec<Skill>, String> {
    let table =
        fs::read_to_string(format!("{CORPORA}/corpora.tsv")).map_err(|error| error.to_string())?;
    let mut rows = table
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let head = rows.next().ok_or("the table is empty")?;
    let column = |name: &str| {
        head.iter()
            .position(|cell| *cell == name)
            .ok_or(format!("the table has no column {name}"))
    };
    let [id, label, tier, categories, path, family, kept] = [
        column("id")?,
        column("label")?,
        column("tier")?,
        column("categories")?,
        column("path")?,
        column("family")?,
        column("in_tar")?,
    ];
    let mut skills = Vec::new();
    for row in rows.filter(|row| row.get(kept) == Some(&"1")) {
        let root = folder.join(row[id]);
        let mut files = Vec::new();
        read(&root, &root, &mut files).map_err(|error| format!("{}: {error}", root.display()))?;
        let name = row[path].rsplit('/').next().unwrap_or_default();
        let options = GateOptions {
            folder: Some(name),
            ..GateOptions::default()
        };
        let bytes = files.iter().map(|file| file.bytes.len() as u64).sum();
        let mut micros = u64::MAX;
        let mut verdict = None;
        for _ in 0..runs.max(1) {
            let copy = files.clone();
            let begun = Instant::now();
            let gated = gate::check(copy, &options);
            micros = micros.min(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
            verdict = Some(gated);
        }
        let findings = verdict.map(|verdict| verdict.findings).unwrap_or_default();
        let shape = findings
            .iter()
            .find(|finding| finding.level == Level::Error)
            .map(|finding| finding.rule);
        let readable = files
            .iter()
            .find(|file| file.path.eq_ignore_ascii_case("SKILL.md"))
            .is_some_and(|file| vault_gate::document::frontmatter_json(&file.bytes).is_some());
        skills.push(Skill {
            id: row[id].to_owned(),
            label: row[label].to_owned(),
            tier: row[tier].to_owned(),
            categories: row[categories].to_owned(),
            family: row[family].to_owned(),
            findings: findings
                .into_iter()
                .filter(|finding| !finding.id.starts_with("VG-ST-"))
                .collect(),
            shape,
            readable,
            micros,
            bytes,
        });
    }
    Ok(skills)
}

fn read(root: &Path, folder: &Path, files: &mut Vec<RawFile>) -> std::io::Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            read(root, &path, files)?;
        } else if kind.is_file() {
            let mode = if kind.permissions().mode() & 0o100 != 0 {
                Mode::Executable
            } else {
                Mode::Plain
            };
            let name = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            files.push(RawFile {
                path: name,
                mode,
                bytes: fs::read(&path)?,
            });
        }
    }
    Ok(())
}

/// Share of blocked and of said ones among some skills.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    /// How many were measured.
    pub count: usize,
    /// How many the scanner blocks.
    pub blocked: usize,
    /// How many it says something about, blocked ones included.
    pub said: usize,
}

impl Rate {
    /// The rate of these skills.
    pub fn of<'a>(skills: impl Iterator<Item = &'a Skill>) -> Self {
        skills.fold(Self::default(), |rate, skill| Self {
            count: rate.count + 1,
            blocked: rate.blocked + usize::from(skill.is_blocked()),
            said: rate.said + usize::from(skill.is_said()),
        })
    }

    /// The rate of the families of these skills: a family counts as blocked when half of its skills are.
    pub fn of_families<'a>(skills: impl Iterator<Item = &'a Skill>) -> Self {
        let mut families = BTreeMap::<&str, Self>::new();
        for skill in skills {
            let rate = families.entry(&skill.family).or_default();
            rate.count += 1;
            rate.blocked += usize::from(skill.is_blocked());
            rate.said += usize::from(skill.is_said());
        }
        families.values().fold(Self::default(), |sum, rate| Self {
            count: sum.count + 1,
            blocked: sum.blocked + usize::from(rate.blocked * 2 >= rate.count),
            said: sum.said + usize::from(rate.said * 2 >= rate.count),
        })
    }

    /// Parts in a thousand that are blocked, rounded down.
    pub fn blocked_permille(&self) -> usize {
        self.blocked * 1000 / self.count.max(1)
    }

    /// Parts in a thousand that something is said about, rounded down.
    pub fn said_permille(&self) -> usize {
        self.said * 1000 / self.count.max(1)
    }
}

/// The groups whose rates are asked for.
pub fn groups(skills: &[Skill]) -> Vec<(&'static str, Vec<&Skill>)> {
    let pick = |wanted: &dyn Fn(&Skill) -> bool| {
        skills
            .iter()
            .filter(|skill| wanted(skill))
            .collect::<Vec<_>>()
    };
    vec![
        (
            "real campaigns",
            pick(&|skill| skill.label == "malicious" && skill.tier.starts_with("campaign")),
        ),
        ("all malicious", pick(&|skill| skill.label == "malicious")),
        (
            "real skills, wild",
            pick(&|skill| skill.is_real() && skill.tier != "curated"),
        ),
        (
            "real skills, curated",
            pick(&|skill| skill.is_real() && skill.tier == "curated"),
        ),
    ]
}

/// The p-th part in a hundred of the times, in microseconds.
pub fn percentile(skills: &[Skill], percent: usize) -> u64 {
    let mut times: Vec<u64> = skills.iter().map(|skill| skill.micros).collect();
    times.sort_unstable();
    times
        .get((times.len() * percent / 100).min(times.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// Of each rule: how many malicious, real benign and campaign skills it speaks of, and on how many it is the only one that blocks.
pub fn by_rule(skills: &[Skill]) -> BTreeMap<(&'static str, &'static str), [usize; 4]> {
    let mut table = BTreeMap::<_, [usize; 4]>::new();
    for skill in skills {
        let rules: BTreeSet<_> = skill
            .findings
            .iter()
            .map(|finding| (finding.id, finding.rule))
            .collect();
        let blocking: BTreeSet<_> = skill
            .findings
            .iter()
            .filter(|finding| finding.level == Level::Flag)
            .map(|finding| finding.id)
            .collect();
        for rule in rules {
            let row = table.entry(rule).or_default();
            row[0] += usize::from(skill.label == "malicious");
            row[1] += usize::from(skill.is_real());
            row[2] += usize::from(skill.label == "malicious" && skill.tier.starts_with("campaign"));
            row[3] += usize::from(
                skill.label == "malicious" && blocking.len() == 1 && blocking.contains(rule.0),
            );
        }
    }
    table
}

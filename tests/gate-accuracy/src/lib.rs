//! The gate measured on labelled skills: what it blocks, what it warns of, which rule says so, and
//! how long it takes.
//!
//! Only what the scanner says counts: a skill that is refused for its shape (no frontmatter, say)
//! is neither a detection nor a false alarm here. Nothing of a skill is ever executed.

pub mod rewrite;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::time::{ClockId, clock_gettime};
use vault_format::manifest::Mode;
use vault_gate::{self as gate, Finding, GateOptions, Level, RawFile};

/// Where the labelled skills lie, seen from this crate.
pub const CORPORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpora");

/// The tier of skills of companies about their own products, from collections beside the labelled
/// ones.
pub const VENDORS: &str = "vendors";
/// The tier of everybody else's skills in such collections.
pub const STRANGERS: &str = "strangers";

/// A labelled skill and what the gate found in it.
#[derive(Debug)]
pub struct Skill {
    /// Its id in the table, or its path in a collection.
    pub id: String,
    /// Whether it belongs to the third that no rule is tuned to.
    pub is_held_out: bool,
    /// Its files, for rewrites.
    pub files: Vec<RawFile>,
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
    /// By what the structure refuses it, if it does.
    pub shape: Option<Finding>,
    /// Whether its frontmatter can be read.
    pub readable: bool,
    /// Processor time of the whole gate, in microseconds: the best of three runs.
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
        self.label == "benign" && !matches!(self.tier.as_str(), "synthetic" | "fixture")
    }

    /// The part that its figures count in.
    pub fn part(&self) -> &'static str {
        if self.is_held_out {
            "held out"
        } else {
            "tuned"
        }
    }
}

/// Whether a family of near copies, or a skill of a collection, belongs to the third that is held
/// out. The choice depends on nothing but the name (FNV-1a), so it is the same in every run and in
/// every later version. Rules are written against the other two thirds; of this one only totals are
/// ever printed.
pub fn is_held_out(name: &str) -> bool {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 17) % 3 == 2
}

/// Whether a family of the tuned part is set aside: nobody who writes rules looks at it.
pub fn is_set_aside(family: &str) -> bool {
    include_str!("../set-aside.txt")
        .lines()
        .any(|line| line == family)
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
        let mut skill = judge(files, name, None, runs);
        row[id].clone_into(&mut skill.id);
        skill.is_held_out = is_held_out(row[family]);
        row[label].clone_into(&mut skill.label);
        row[tier].clone_into(&mut skill.tier);
        row[categories].clone_into(&mut skill.categories);
        row[family].clone_into(&mut skill.family);
        skills.push(skill);
    }
    Ok(skills)
}

/// Gates every skill of a folder of collections: each of its folders is a checkout called
/// `owner+repository`. All of them count as real.
pub fn measure_collections(folder: &Path, tier: &str, runs: usize) -> Result<Vec<Skill>, String> {
    let mut skills = Vec::new();
    for checkout in entries(folder).map_err(|error| error.to_string())? {
        let repository = file_name(&checkout);
        let owner = repository.split('+').next().unwrap_or_default();
        let mut roots = Vec::new();
        find_skills(&checkout, &mut roots).map_err(|error| error.to_string())?;
        for root in roots {
            let mut files = Vec::new();
            read(&root, &root, &mut files).map_err(|error| error.to_string())?;
            let below = root.strip_prefix(folder).unwrap_or(&root);
            let id = below.to_string_lossy().into_owned();
            skills.push(Skill {
                is_held_out: is_held_out(&id),
                family: id.clone(),
                id,
                label: "benign".to_owned(),
                tier: tier.to_owned(),
                ..judge(files, &file_name(&root), Some(owner), runs)
            });
        }
    }
    Ok(skills)
}

/// Gates the skills that `matrix.py` wrote: folders called `effect+language+shape+kind+number`,
/// where the kind is `attack` or `twin`.
pub fn measure_matrix(folder: &Path) -> Result<Vec<Skill>, String> {
    let mut skills = Vec::new();
    for root in entries(folder).map_err(|error| error.to_string())? {
        let name = file_name(&root);
        let parts: Vec<&str> = name.split('+').collect();
        let [effect, language, shape, kind, _] = parts[..] else {
            return Err(format!("{name}: not a skill of the matrix"));
        };
        let label = match kind {
            "attack" => "malicious",
            "twin" => "benign",
            _ => return Err(format!("{name}: neither an attack nor a twin")),
        };
        let mut files = Vec::new();
        read(&root, &root, &mut files).map_err(|error| error.to_string())?;
        skills.push(Skill {
            id: name.clone(),
            label: label.to_owned(),
            tier: format!("{effect}, {language}, {shape}"),
            ..judge(files, "helper", None, 1)
        });
    }
    Ok(skills)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn find_skills(folder: &Path, roots: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let all = entries(folder)?;
    if all
        .iter()
        .any(|path| file_name(path).eq_ignore_ascii_case("SKILL.md"))
    {
        roots.push(folder.to_owned());
        return Ok(());
    }
    for path in all {
        if fs::symlink_metadata(&path)?.is_dir() {
            find_skills(&path, roots)?;
        }
    }
    Ok(())
}

/// What this thread has used of a processor: another program on the machine takes nothing of it.
fn processor_micros() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let micros = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
    u64::try_from(micros).unwrap_or_default()
}

/// Gates one skill.
fn judge(files: Vec<RawFile>, name: &str, owner: Option<&str>, runs: usize) -> Skill {
    let options = options(name, owner);
    let mut micros = u64::MAX;
    let mut findings = Vec::new();
    for _ in 0..runs.max(1) {
        let copy = files.clone();
        let begun = processor_micros();
        let verdict = gate::check(copy, &options);
        micros = micros.min(processor_micros().saturating_sub(begun));
        findings = verdict.findings;
    }
    let shape = findings
        .iter()
        .find(|finding| finding.level == Level::Error)
        .cloned();
    let readable = files
        .iter()
        .find(|file| file.path.eq_ignore_ascii_case("SKILL.md"))
        .is_some_and(|file| vault_gate::document::frontmatter_json(&file.bytes).is_some());
    findings.retain(|finding| !finding.id.starts_with("VG-ST-"));
    Skill {
        id: String::new(),
        is_held_out: false,
        label: String::new(),
        tier: String::new(),
        categories: String::new(),
        family: String::new(),
        shape,
        readable,
        micros,
        bytes: files.iter().map(|file| file.bytes.len() as u64).sum(),
        findings,
        files,
    }
}

/// How a skill of this folder and this owner is gated.
fn options<'a>(name: &'a str, owner: Option<&'a str>) -> GateOptions<'a> {
    GateOptions {
        folder: Some(name),
        publisher: owner.map(str::to_ascii_lowercase).into_iter().collect(),
        ..GateOptions::default()
    }
}

fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    entries.sort();
    Ok(entries)
}

fn read(root: &Path, folder: &Path, files: &mut Vec<RawFile>) -> std::io::Result<()> {
    for path in entries(folder)? {
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
    /// How many the structure refuses, whatever the scanner says.
    pub refused: usize,
}

impl Rate {
    /// The rate of these skills.
    pub fn of<'a>(skills: impl Iterator<Item = &'a Skill>) -> Self {
        skills.fold(Self::default(), |rate, skill| Self {
            count: rate.count + 1,
            blocked: rate.blocked + usize::from(skill.is_blocked()),
            said: rate.said + usize::from(skill.is_said()),
            refused: rate.refused + usize::from(skill.shape.is_some()),
        })
    }

    /// The rate of the families of these skills: a family counts as blocked when half of its skills
    /// are.
    pub fn of_families<'a>(skills: impl Iterator<Item = &'a Skill>) -> Self {
        let mut families = BTreeMap::<&str, Self>::new();
        for skill in skills {
            let rate = families.entry(&skill.family).or_default();
            rate.count += 1;
            rate.blocked += usize::from(skill.is_blocked());
            rate.said += usize::from(skill.is_said());
            rate.refused += usize::from(skill.shape.is_some());
        }
        families.values().fold(Self::default(), |sum, rate| Self {
            count: sum.count + 1,
            blocked: sum.blocked + usize::from(rate.blocked * 2 >= rate.count),
            said: sum.said + usize::from(rate.said * 2 >= rate.count),
            refused: sum.refused + usize::from(rate.refused * 2 >= rate.count),
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

/// The name of a rewrite, how many skills it leaves blocked, and the ids of the others.
pub type Rewritten<'a> = (&'static str, usize, Vec<&'a str>);

/// Of the blocked malicious skills: how many there are, and how many each rewrite of their Markdown
/// leaves blocked.
pub fn rewritten<'a>(skills: impl Iterator<Item = &'a Skill>) -> (usize, Vec<Rewritten<'a>>) {
    let blocked: Vec<&Skill> = skills
        .filter(|skill| skill.label == "malicious" && skill.is_blocked())
        .collect();
    let left = rewrite::REWRITES.iter().map(|(name, change)| {
        let lost: Vec<&str> = blocked
            .iter()
            .filter(|skill| {
                let mut files = skill.files.clone();
                for file in &mut files {
                    let is_markdown = Path::new(&file.path)
                        .extension()
                        .is_some_and(|kind| kind.eq_ignore_ascii_case("md"));
                    if is_markdown && let Ok(text) = std::str::from_utf8(&file.bytes) {
                        file.bytes = change(text).into_bytes();
                    }
                }
                !judge(files, "", None, 1).is_blocked()
            })
            .map(|skill| skill.id.as_str())
            .collect();
        (*name, blocked.len() - lost.len(), lost)
    });
    (blocked.len(), left.collect())
}

/// The groups whose rates are asked for; those of other collections are empty where none is given.
pub fn groups<'a>(skills: impl Iterator<Item = &'a Skill>) -> Vec<(&'static str, Vec<&'a Skill>)> {
    let skills: Vec<&Skill> = skills.collect();
    let pick = |wanted: &dyn Fn(&Skill) -> bool| {
        skills
            .iter()
            .copied()
            .filter(|skill| wanted(skill))
            .collect::<Vec<_>>()
    };
    let tier = |tier: &'static str| pick(&|skill| skill.label == "benign" && skill.tier == tier);
    vec![
        (
            "real campaigns",
            pick(&|skill| skill.label == "malicious" && skill.tier.starts_with("campaign")),
        ),
        ("all malicious", pick(&|skill| skill.label == "malicious")),
        (
            "real skills, wild",
            pick(&|skill| skill.is_real() && skill.tier.starts_with("wild")),
        ),
        ("real skills, curated", tier("curated")),
        ("first-party vendors", tier(VENDORS)),
        ("strangers", tier(STRANGERS)),
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

/// Of each rule: how many malicious and real skills it finds something in, how many real and
/// campaign skills it blocks, and on how many malicious skills it is the only one that blocks.
pub fn by_rule<'a>(
    skills: impl Iterator<Item = &'a Skill>,
) -> BTreeMap<(&'static str, &'static str), [usize; 5]> {
    let mut table = BTreeMap::<_, [usize; 5]>::new();
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
        let is_malicious = skill.label == "malicious";
        for rule in rules {
            let is_flag = blocking.contains(rule.0);
            let row = table.entry(rule).or_default();
            row[0] += usize::from(is_malicious);
            row[1] += usize::from(skill.is_real());
            row[2] += usize::from(skill.is_real() && is_flag);
            row[3] += usize::from(is_malicious && skill.tier.starts_with("campaign"));
            row[4] += usize::from(is_malicious && blocking.len() == 1 && is_flag);
        }
    }
    table
}

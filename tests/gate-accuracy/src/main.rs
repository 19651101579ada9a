//! Prints the tables of the gate on the labelled skills, and with `--write` keeps the figures in `figures.json`.
//!
//! `cargo run --release -p gate-accuracy -- [--unpacked FOLDER] [--misses] [--alarms] [--write]`

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use gate_accuracy::{CORPORA, Rate, Skill, by_rule, groups, measure, percentile, unpack};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let has = |word: &str| words.iter().any(|given| given == word);
    if !PathBuf::from(CORPORA).join("corpora.tsv").exists() {
        return Err(format!("there are no labelled skills in {CORPORA}"));
    }
    let given = words
        .iter()
        .position(|word| word == "--unpacked")
        .and_then(|at| words.get(at + 1))
        .map(PathBuf::from);
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let folder = match given {
        Some(folder) => folder,
        None => {
            unpack(scratch.path())?;
            scratch.path().to_owned()
        }
    };
    let skills = measure(&folder, 3)?;
    tables(&skills);
    if has("--misses") {
        list(
            skills
                .iter()
                .filter(|skill| skill.label == "malicious" && !skill.is_blocked()),
        );
    }
    if has("--alarms") {
        list(
            skills
                .iter()
                .filter(|skill| skill.is_real() && skill.is_said()),
        );
    }
    if has("--write") {
        let figures: BTreeMap<_, _> = groups(&skills)
            .into_iter()
            .map(|(name, group)| {
                let rate = Rate::of(group.into_iter());
                (name, serde_json::json!({ "skills": rate.count, "blocked": rate.blocked, "said": rate.said }))
            })
            .collect();
        let text = serde_json::to_string_pretty(&figures).map_err(|error| error.to_string())?;
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/figures.json"),
            text + "\n",
        )
        .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn percent(part: usize, whole: usize) -> String {
    let permille = (part * 1000 + whole / 2) / whole.max(1);
    format!("{}.{} %", permille / 10, permille % 10)
}

#[expect(clippy::print_stdout, reason = "this program's tables are its output")]
fn tables(skills: &[Skill]) {
    let row = |name: &str, rate: Rate| {
        println!(
            "| {name} | {} | {} | {} |",
            rate.count,
            percent(rate.blocked, rate.count),
            percent(rate.said, rate.count)
        );
    };
    println!("| group | skills | blocked | with warnings |\n|---|---|---|---|");
    for (name, group) in groups(skills) {
        row(name, Rate::of(group.iter().copied()));
        row(
            &format!("{name}, by family"),
            Rate::of_families(group.iter().copied()),
        );
        for third in 0..3 {
            row(
                &format!("{name}, third {third}"),
                Rate::of(group.iter().copied().filter(|skill| skill.third() == third)),
            );
        }
    }
    println!("\n| label, tier | skills | blocked | with warnings |\n|---|---|---|---|");
    let mut tiers = BTreeMap::<(String, String), Vec<&Skill>>::new();
    for skill in skills {
        tiers
            .entry((skill.label.clone(), skill.tier.clone()))
            .or_default()
            .push(skill);
    }
    for ((label, tier), group) in tiers {
        row(&format!("{label}, {tier}"), Rate::of(group.into_iter()));
    }
    println!("\n| category (malicious) | skills | blocked | with warnings |\n|---|---|---|---|");
    let mut categories = BTreeMap::<String, Vec<&Skill>>::new();
    for skill in skills
        .iter()
        .filter(|skill| skill.label == "malicious" && !skill.tier.starts_with("campaign"))
    {
        let word = skill
            .categories
            .split(';')
            .nth(1)
            .unwrap_or(&skill.categories);
        categories.entry(word.to_owned()).or_default().push(skill);
    }
    for (category, group) in categories {
        row(&category, Rate::of(group.into_iter()));
    }
    println!(
        "\n| rule | name | malicious | real | campaigns | alone blocks |\n|---|---|---|---|---|---|"
    );
    for ((id, name), [malicious, real, campaigns, alone]) in by_rule(skills) {
        println!("| {id} | {name} | {malicious} | {real} | {campaigns} | {alone} |");
    }
    let real: Vec<&Skill> = skills
        .iter()
        .filter(|skill| skill.is_real() && skill.readable)
        .collect();
    let refused = real.iter().filter(|skill| skill.shape.is_some()).count();
    let mut shapes = BTreeMap::<&str, usize>::new();
    for rule in real.iter().filter_map(|skill| skill.shape) {
        *shapes.entry(rule).or_default() += 1;
    }
    println!(
        "\nReal skills that the structure refuses though their frontmatter can be read: {shapes:?}."
    );
    println!(
        "\nStructure: {} of {} real skills with readable frontmatter pass ({}).",
        real.len() - refused,
        real.len(),
        percent(real.len() - refused, real.len())
    );
    let bytes: u64 = skills.iter().map(|skill| skill.bytes).sum();
    let micros: u64 = skills.iter().map(|skill| skill.micros).sum();
    println!(
        "Time a skill, whole gate, best of three: p50 {} us, p90 {} us, p99 {} us, max {} us; {} MB/s.",
        percentile(skills, 50),
        percentile(skills, 90),
        percentile(skills, 99),
        percentile(skills, 100),
        bytes / micros.max(1),
    );
}

#[expect(clippy::print_stdout, reason = "this program's lists are its output")]
fn list<'a>(skills: impl Iterator<Item = &'a Skill>) {
    for skill in skills {
        println!(
            "\n{} {} {} ({}){}",
            skill.id,
            skill.label,
            skill.tier,
            skill.categories,
            if skill.is_blocked() {
                " BLOCKED"
            } else if skill.is_said() {
                " warned"
            } else {
                ""
            }
        );
        for finding in skill.findings.iter().take(12) {
            println!(
                "  {} [{}] {:?} {}",
                finding, finding.id, finding.view, finding.excerpt
            );
        }
    }
}

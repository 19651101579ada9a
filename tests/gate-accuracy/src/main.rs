//! Prints the tables of the gate on the labelled skills, and with `--write` keeps the figures in
//! `figures.json`.
//!
//! `cargo run --release -p gate-accuracy -- [--unpacked FOLDER] [--vendors FOLDER] [--strangers FOLDER] [--rewrites] [--found] [--misses] [--alarms] [--refused] [--slow] [--fast] [--write] [--set-aside] [--matrix FOLDER]`.
//! `--vendors` and `--strangers` name folders of checkouts called `owner+repository`, whose skills
//! count as real. `--set-aside` reports the families of `set-aside.txt` apart. `--matrix` measures
//! only the skills that `matrix.py` wrote into a folder.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use gate_accuracy::{
    CORPORA, Rate, STRANGERS, Skill, VENDORS, by_rule, groups, is_set_aside, measure,
    measure_collections, measure_matrix, percentile, rewritten, unpack,
};

/// The parts whose figures stand beside each other.
const PARTS: [&str; 2] = ["tuned", "held out"];

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
    let value = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1).map(PathBuf::from)
    };
    if let Some(folder) = value("--matrix") {
        let skills = measure_matrix(&folder)?;
        matrix(&skills);
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
                    .filter(|skill| skill.label == "benign" && skill.is_said()),
            );
        }
        return Ok(());
    }
    if !PathBuf::from(CORPORA).join("corpora.tsv").exists() {
        return Err(format!("there are no labelled skills in {CORPORA}"));
    }
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let folder = match value("--unpacked") {
        Some(folder) => folder,
        None => {
            unpack(scratch.path())?;
            scratch.path().to_owned()
        }
    };
    let runs = if has("--fast") { 1 } else { 3 };
    let mut skills = measure(&folder, runs)?;
    for (flag, tier) in [("--vendors", VENDORS), ("--strangers", STRANGERS)] {
        if let Some(folder) = value(flag) {
            skills.extend(measure_collections(&folder, tier, runs)?);
        }
    }
    tables(&skills);
    if has("--rewrites") {
        rewrites(&skills);
    }
    if has("--set-aside") {
        set_aside(&skills);
    }
    // Skills that are held out or set aside are never listed: whoever reads them tunes to them.
    let tuned = || {
        let listed = |skill: &&Skill| !skill.is_held_out && !is_set_aside(&skill.family);
        skills.iter().filter(listed)
    };
    if has("--misses") {
        list(tuned().filter(|skill| skill.label == "malicious" && !skill.is_blocked()));
    }
    if has("--found") {
        list(tuned().filter(|skill| skill.label == "malicious"));
    }
    if has("--alarms") {
        list(tuned().filter(|skill| skill.is_real() && skill.is_said()));
    }
    if has("--refused") {
        refused(tuned().filter(|skill| skill.is_real()));
    }
    if has("--slow") {
        slow(tuned().collect());
    }
    if has("--write") {
        let mut figures = BTreeMap::new();
        for part in PARTS {
            let labelled = skills.iter().filter(|skill| {
                skill.part() == part && ![VENDORS, STRANGERS].contains(&skill.tier.as_str())
            });
            for (name, group) in groups(labelled) {
                let rate = Rate::of(group.into_iter());
                if rate.count > 0 {
                    figures.insert(
                        format!("{name}, {part}"),
                        serde_json::json!({ "skills": rate.count, "blocked": rate.blocked, "said": rate.said }),
                    );
                }
            }
        }
        let text = serde_json::to_string_pretty(&figures).map_err(|error| error.to_string())?;
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/figures.json"),
            text + "\n",
        )
        .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Prints the figures of the families that are set aside, one by one and together.
#[expect(clippy::print_stdout, reason = "this program's tables are its output")]
fn set_aside(skills: &[Skill]) {
    println!("\n| set aside | skills | flagged | any finding |\n|---|---|---|---|");
    let apart = || skills.iter().filter(|skill| is_set_aside(&skill.family));
    let mut families = BTreeMap::<&str, Vec<&Skill>>::new();
    for skill in apart() {
        families.entry(&skill.family).or_default().push(skill);
    }
    let all = Rate::of(apart());
    let rates = families
        .into_iter()
        .map(|(name, group)| (name, Rate::of(group.into_iter())));
    for (name, rate) in rates.chain([("all", all)]) {
        println!(
            "| {name} | {} | {} | {} |",
            rate.count, rate.blocked, rate.said
        );
    }
}

/// Prints the figures of made-up attacks and of their harmless twins, by language and shape.
#[expect(clippy::print_stdout, reason = "this program's tables are its output")]
fn matrix(skills: &[Skill]) {
    println!(
        "| effect, language, shape | attacks | flagged | any finding | twins flagged | twins with any finding |\n|---|---|---|---|---|---|"
    );
    let mut rows = BTreeMap::<String, [Vec<&Skill>; 2]>::new();
    for skill in skills {
        let part = usize::from(skill.label == "benign");
        let effect = skill.tier.split(',').next().unwrap_or_default();
        for name in [
            skill.tier.clone(),
            format!("{effect}, all"),
            "~ all".to_owned(),
        ] {
            rows.entry(name).or_default()[part].push(skill);
        }
    }
    for (name, [attacks, twins]) in rows {
        let attacks = Rate::of(attacks.into_iter());
        let twins = Rate::of(twins.into_iter());
        println!(
            "| {name} | {} | {} ({}) | {} ({}) | {} | {} |",
            attacks.count,
            attacks.blocked,
            percent(attacks.blocked, attacks.count),
            attacks.said,
            percent(attacks.said, attacks.count),
            twins.blocked,
            twins.said,
        );
    }
}

fn percent(part: usize, whole: usize) -> String {
    let permille = (part * 1000 + whole / 2) / whole.max(1);
    format!("{}.{} %", permille / 10, permille % 10)
}

#[expect(clippy::print_stdout, reason = "this program's tables are its output")]
fn rewrites(skills: &[Skill]) {
    println!("\n| rewrite | part | blocked before | still blocked |\n|---|---|---|---|");
    for part in PARTS {
        let (blocked, left) = rewritten(skills.iter().filter(|skill| skill.part() == part));
        for (name, count, lost) in left {
            println!(
                "| {name} | {part} | {blocked} | {count} ({}) |",
                percent(count, blocked)
            );
            if part == PARTS[0] && !lost.is_empty() {
                println!("  lost: {}", lost.join(" "));
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "this program's tables are its output")]
fn tables(skills: &[Skill]) {
    let row = |name: &str, rate: Rate| {
        if rate.count > 0 {
            println!(
                "| {name} | {} | {} | {} | {} |",
                rate.count,
                percent(rate.blocked, rate.count),
                percent(rate.said, rate.count),
                rate.refused,
            );
        }
    };
    let head = "| skills | flagged | any finding | refused for structure |\n|---|---|---|---|---|";
    println!("| group {head}");
    for part in PARTS {
        for (name, group) in groups(skills.iter().filter(|skill| skill.part() == part)) {
            row(&format!("{name}, {part}"), Rate::of(group.iter().copied()));
            row(
                &format!("{name}, {part}, by family"),
                Rate::of_families(group.iter().copied()),
            );
        }
    }
    let tuned: Vec<&Skill> = skills.iter().filter(|skill| !skill.is_held_out).collect();
    println!("\nWhat follows is about the tuned part.\n\n| label, tier {head}");
    let mut tiers = BTreeMap::<(String, String), Vec<&Skill>>::new();
    for skill in &tuned {
        tiers
            .entry((skill.label.clone(), skill.tier.clone()))
            .or_default()
            .push(skill);
    }
    for ((label, tier), group) in tiers {
        row(&format!("{label}, {tier}"), Rate::of(group.into_iter()));
    }
    println!("\n| category (malicious) {head}");
    let mut categories = BTreeMap::<String, Vec<&Skill>>::new();
    for skill in tuned
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
        "\n| rule | name | malicious | real | real blocked | campaigns | alone blocks |\n|---|---|---|---|---|---|---|"
    );
    for ((id, name), [malicious, real, flagged, campaigns, alone]) in by_rule(tuned.iter().copied())
    {
        println!("| {id} | {name} | {malicious} | {real} | {flagged} | {campaigns} | {alone} |");
    }
    structure_and_time(skills);
}

#[expect(clippy::print_stdout, reason = "this program's tables are its output")]
fn structure_and_time(skills: &[Skill]) {
    let real: Vec<&Skill> = skills
        .iter()
        .filter(|skill| skill.is_real() && skill.readable)
        .collect();
    let refused = real.iter().filter(|skill| skill.shape.is_some()).count();
    let mut shapes = BTreeMap::<&str, usize>::new();
    for rule in real
        .iter()
        .filter_map(|skill| skill.shape.as_ref().map(|finding| finding.rule))
    {
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
        "Processor time a skill, whole gate, best of three: p50 {} us, p90 {} us, p99 {} us, max {} us; {} MB/s.",
        percentile(skills, 50),
        percentile(skills, 90),
        percentile(skills, 99),
        percentile(skills, 100),
        bytes / micros.max(1),
    );
}

#[expect(clippy::print_stdout, reason = "this program's lists are its output")]
fn refused<'a>(skills: impl Iterator<Item = &'a Skill>) {
    println!();
    for (id, finding) in skills.filter_map(|skill| Some((&skill.id, skill.shape.as_ref()?))) {
        println!("refused {id}: {finding}");
    }
}

#[expect(clippy::print_stdout, reason = "this program's lists are its output")]
fn slow(mut skills: Vec<&Skill>) {
    skills.sort_by_key(|skill| std::cmp::Reverse(skill.micros));
    for skill in skills.iter().take(20) {
        println!(
            "slow {} us {} bytes {}",
            skill.micros, skill.bytes, skill.id
        );
    }
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

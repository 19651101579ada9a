//! Asks the ranking of `vault search` questions about real skills, and counts the right answers.
//!
//! `search-questions FOLDER [--misses]`: FOLDER has one folder for each repository, as
//! `tests/bench/questions/run` makes it. `questions.tsv` has a question in each line, with the
//! skills that answer it, or `-`. Half of the questions are held out: the ranking is tuned to the
//! others, and of these only totals are ever printed. `fresh.tsv` and `blind.tsv` have more
//! questions, to which nothing was tuned. The last line asks those of `questions.tsv` and
//! `fresh.tsv` again, each with a name.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use vault_format::name::SkillName;
use vault_gate::document::{Document, Frontmatter, SKILL_MD};
use vault_policy::search::{Ranking, Text};

const QUESTIONS: &str = include_str!("../questions.tsv");
/// Questions that were written after the ranking and its synonyms, and never used to tune them.
const FRESH_QUESTIONS: &str = include_str!("../fresh.tsv");
/// Questions that were written last, before any result for them was seen. No ranking was changed
/// after they were first asked.
const BLIND_QUESTIONS: &str = include_str!("../blind.tsv");
/// Number of results that count for the reciprocal rank, as `get_skill` allows at most.
const TOP: usize = 20;
/// The figures of the ranking before it knew endings, synonyms and a threshold, on the same
/// questions: the first hit, the mean reciprocal rank, and the questions without an answer that got
/// none.
const EARLIER: &str = "earlier    52.5 %  0.613   0 of 20";

/// A skill of a repository.
struct Skill {
    /// The id in `questions.tsv`: `owner/name:folder`, or `starter:name`.
    id: String,
    name: String,
    frontmatter: Frontmatter,
}

/// A question with the ids of the skills that answer it; none if there is no answer.
struct Question {
    text: String,
    answers: Vec<&'static str>,
}

/// The counts of one part of the questions.
#[derive(Default)]
struct Figures {
    answered: u32,
    first: u32,
    reciprocal: f64,
    unanswered: u32,
    empty: u32,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(folder) = words.first() else {
        say("usage: search-questions FOLDER [--misses]");
        return ExitCode::from(2);
    };
    let shows_misses = words.iter().any(|word| word == "--misses");
    match run(Path::new(folder), shows_misses) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(folder: &Path, shows_misses: bool) -> Result<(), String> {
    let skills = read_skills(folder)?;
    let questions: Vec<Question> = QUESTIONS.lines().filter_map(parse_question).collect();
    let fresh: Vec<Question> = FRESH_QUESTIONS.lines().filter_map(parse_question).collect();
    let blind: Vec<Question> = BLIND_QUESTIONS.lines().filter_map(parse_question).collect();
    for asked in [&questions, &fresh, &blind] {
        check_answers(&skills, asked)?;
    }
    let ranking = Ranking::new(skills.iter().map(search_text));
    let (held_out, tuned): (Vec<_>, Vec<_>) = questions
        .iter()
        .partition(|question| is_held_out(&question.text));
    say(&format!(
        "{} skills, {} questions, {} fresh ones, {} blind ones",
        skills.len(),
        questions.len(),
        fresh.len(),
        blind.len()
    ));
    say("part       first    MRR  no answer, none given");
    say(EARLIER);
    let mut all = Figures::default();
    let misses = |part| shows_misses && part == "tuned";
    for (part, asked) in [("tuned", tuned), ("held out", held_out)] {
        let figures = ask(&ranking, &skills, &asked, misses(part));
        say(&figures.line(part));
        all.add(&figures);
    }
    say(&all.line("all"));
    for (part, questions) in [("fresh", &fresh), ("blind", &blind)] {
        let asked: Vec<&Question> = questions.iter().collect();
        say(&ask(&ranking, &skills, &asked, false).line(part));
    }
    let named: Vec<Question> = questions.into_iter().chain(fresh).map(add_name).collect();
    let asked: Vec<&Question> = named.iter().collect();
    say(&ask(&ranking, &skills, &asked, false).line("named"));
    Ok(())
}

/// Asks questions and counts the right answers; `shows_misses` lists the wrong ones.
fn ask(
    ranking: &Ranking,
    skills: &[Skill],
    questions: &[&Question],
    shows_misses: bool,
) -> Figures {
    let mut figures = Figures::default();
    for question in questions {
        let hits = ranking.search(&question.text, TOP);
        let found: Vec<&str> = hits
            .iter()
            .filter_map(|hit| Some(skills.get(hit.position)?.id.as_str()))
            .collect();
        let is_right = figures.count(question, &found);
        if shows_misses && !is_right {
            let best = found.first().copied().unwrap_or("nothing");
            say(&format!("  {} -> {best}", question.text));
        }
    }
    figures
}

fn search_text(skill: &Skill) -> Text<'_> {
    Text {
        name: &skill.name,
        description: &skill.frontmatter.description,
        tags: &skill.frontmatter.tags,
        categories: &skill.frontmatter.categories,
        when_to_use: skill.frontmatter.when_to_use.as_deref().unwrap_or_default(),
    }
}

fn parse_question(line: &'static str) -> Option<Question> {
    let (text, answers) = line.split_once('\t')?;
    let answers = match answers {
        "-" => Vec::new(),
        answers => answers.split('|').collect(),
    };
    Some(Question {
        text: text.to_owned(),
        answers,
    })
}

/// Adds a name that no skill has, as people who ask for their own project do. The answers stay.
fn add_name(question: Question) -> Question {
    Question {
        text: question.text + " for Contoso",
        ..question
    }
}

/// Fails if an answer is no skill at hand: such a question could never be answered.
fn check_answers(skills: &[Skill], questions: &[Question]) -> Result<(), String> {
    let unknown = questions
        .iter()
        .flat_map(|question| &question.answers)
        .find(|answer| skills.iter().all(|skill| skill.id != **answer));
    match unknown {
        Some(answer) => Err(format!("there is no skill {answer}")),
        None => Ok(()),
    }
}

/// Whether a question belongs to the half that is held out. The choice depends on nothing but the
/// text (FNV-1a), so it is the same in every run and in every later version.
fn is_held_out(text: &str) -> bool {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 17) % 2 == 1
}

impl Figures {
    /// Counts the skills that were found for a question. Returns whether the first one is right.
    fn count(&mut self, question: &Question, found: &[&str]) -> bool {
        if question.answers.is_empty() {
            self.unanswered += 1;
            self.empty += u32::from(found.is_empty());
            return found.is_empty();
        }
        self.answered += 1;
        let rank = found.iter().position(|id| question.answers.contains(id));
        let rank = rank.and_then(|rank| u32::try_from(rank + 1).ok());
        self.reciprocal += rank.map_or(0.0, |rank| 1.0 / f64::from(rank));
        self.first += u32::from(rank == Some(1));
        rank == Some(1)
    }

    fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.first += other.first;
        self.reciprocal += other.reciprocal;
        self.unanswered += other.unanswered;
        self.empty += other.empty;
    }

    fn line(&self, part: &str) -> String {
        let answered = f64::from(self.answered.max(1));
        format!(
            "{part:9} {:5.1} %  {:.3}  {:2} of {}",
            100.0 * f64::from(self.first) / answered,
            self.reciprocal / answered,
            self.empty,
            self.unanswered
        )
    }
}

/// Reads every SKILL.md below a folder, sorted by id.
fn read_skills(folder: &Path) -> Result<Vec<Skill>, String> {
    let mut files = Vec::new();
    find_files(folder, &mut files).map_err(|error| error.to_string())?;
    let mut skills = Vec::new();
    for file in files {
        let Some(below) = file
            .parent()
            .and_then(|root| root.strip_prefix(folder).ok())
        else {
            continue;
        };
        let id = skill_id(&below.to_string_lossy());
        let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let last = id.rsplit(['/', ':']).next().unwrap_or_default();
        let Some(name) = SkillName::derive(last) else {
            continue;
        };
        // What vault cannot read it cannot find either; an answer among these fails later.
        match Document::parse_known(&bytes, &name) {
            Ok(document) => {
                let frontmatter = document.frontmatter().clone();
                let name = SkillName::derive(&frontmatter.name)
                    .unwrap_or(name)
                    .to_string();
                skills.push(Skill {
                    id,
                    name,
                    frontmatter,
                });
            }
            Err(error) => say(&format!("left out: {id}: {error}")),
        }
    }
    skills.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(skills)
}

/// Returns the id of the skill at a path: `owner+name/folder` is `owner/name:folder`.
fn skill_id(below: &str) -> String {
    let (repository, folder) = below.split_once('/').unwrap_or((below, "."));
    format!("{}:{folder}", repository.replacen('+', "/", 1))
}

fn find_files(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // A link to another folder would count its skills twice.
        if kind.is_dir() {
            find_files(&entry.path(), files)?;
        } else if kind.is_file() && entry.file_name() == SKILL_MD {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

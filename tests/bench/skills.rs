//! Skills by the thousand: the size of real ones, the same in every run.

use std::fs;
use std::path::{Path, PathBuf};

const WORDS: &str = "review checks the change for errors and explains what to mend before it is merged \
    branch commit table column query index service request answer header test fixture module function caller \
    reader writer file folder report summary release note draft page section example deploy rollback monitor \
    alert latency budget owner team customer invoice contract schema migration backup restore queue worker";

/// A small generator of its own: the same texts in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 40).expect("24 bits")
    }
}

fn text(dice: &mut Dice, words: &[&str], bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut line = 0;
    while text.len() < bytes {
        let word = words[dice.next() % words.len()];
        text.push_str(word);
        line += word.len() + 1;
        if line > 90 {
            text.push('\n');
            line = 0;
        } else {
            text.push(' ');
        }
    }
    text
}

/// The name of one of them.
pub fn name(number: usize) -> String {
    format!("skill-{number:05}")
}

/// Writes `count` skills below `folder`, two files of 2 KiB each, and gives their folders.
pub fn write(folder: &Path, count: usize) -> Vec<PathBuf> {
    write_more(folder, 0, count)
}

/// The same for `count` skills from this number on.
pub fn write_more(folder: &Path, first: usize, count: usize) -> Vec<PathBuf> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    (first..first + count)
        .map(|number| {
            let mut dice = Dice(number as u64 + 1);
            let name = name(number);
            let one = folder.join(&name);
            fs::create_dir_all(one.join("references")).expect("a folder");
            let description = text(&mut dice, &words, 120).replace('\n', " ");
            let tags = [
                words[dice.next() % words.len()],
                words[dice.next() % words.len()],
            ];
            let body = text(&mut dice, &words, 1_800);
            let skill = format!(
                "---\nname: {name}\ndescription: {}\ntags: [{}, {}]\n---\n# {name}\n\n{body}\n",
                description.trim(),
                tags[0],
                tags[1],
            );
            fs::write(one.join("SKILL.md"), skill).expect("a file");
            let guide = text(&mut dice, &words, 2_000);
            fs::write(one.join("references/guide.md"), guide).expect("a file");
            one
        })
        .collect()
}

//! Programs that turn a text which stands in the code into another one: `echo … | base64 -d | sh`.

use super::super::program::Program;
use super::Arguments;
use crate::base64::decode_base64;

impl Arguments<'_> {
    /// Remembers what the command prints, if its input stands in the code.
    pub(super) fn decode_printed(&self, program: &mut Program, name: &str) {
        let Some(text) = program.printed.get(&self.command.source) else {
            return;
        };
        let decodes = || self.has("-d") || self.has("-D") || self.has("--decode");
        let decoded = match name {
            "cat" | "tee" => Some(text.clone()),
            "rev" => {
                let lines = text.lines().map(|line| line.chars().rev().collect());
                Some(lines.collect::<Vec<String>>().join("\n"))
            }
            "base64" | "basenc" if decodes() => {
                let letters: Vec<u8> = text
                    .bytes()
                    .filter(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte))
                    .collect();
                text_of(decode_base64(&letters))
            }
            "xxd" if self.words.iter().any(|word| word.text.contains('r')) => {
                let digits: Vec<u32> = text
                    .chars()
                    .filter_map(|digit| digit.to_digit(16))
                    .collect();
                let bytes = digits.chunks_exact(2).map(|pair| pair[0] * 16 + pair[1]);
                text_of(bytes.filter_map(|byte| u8::try_from(byte).ok()).collect())
            }
            "tr" => self.translate(text),
            _ => None,
        };
        if let Some(decoded) = decoded {
            program.remember_printed(self.command.output, decoded);
        }
    }

    /// `tr 'a-z' 'n-za-m'`, `tr -d '#'`.
    fn translate(&self, text: &str) -> Option<String> {
        let sets: Vec<Vec<char>> = self.plain().map(|word| letters_of(&word.text)).collect();
        let translated = match sets.as_slice() {
            [left_out] if self.has("-d") => text
                .chars()
                .filter(|letter| !left_out.contains(letter))
                .collect(),
            [from, to] => {
                let change = |letter: char| {
                    let at = from.iter().position(|one| *one == letter);
                    at.and_then(|at| to.get(at).or(to.last()))
                        .copied()
                        .unwrap_or(letter)
                };
                text.chars().map(change).collect()
            }
            _ => return None,
        };
        Some(translated)
    }
}

/// The letters of a set of `tr`, with its ranges.
fn letters_of(set: &str) -> Vec<char> {
    let given: Vec<char> = set.chars().take(LONGEST_SET).collect();
    let mut letters = Vec::new();
    let mut at = 0;
    while let Some(first) = given.get(at) {
        match (given.get(at + 1), given.get(at + 2)) {
            (Some('-'), Some(last)) if first <= last && last.is_ascii() => {
                letters.extend(*first..=*last);
                at += 3;
            }
            _ => {
                letters.push(*first);
                at += 1;
            }
        }
    }
    letters
}

/// Longest set of letters.
const LONGEST_SET: usize = 256;

fn text_of(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes)
        .ok()
        .map(|text| text.replace('\0', ""))
}

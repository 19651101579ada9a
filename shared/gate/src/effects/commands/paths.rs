//! Paths that are put together from variables of a shell: `"$folder/config.json"`.

use super::super::program::Program;

/// Largest number of texts that a variable, or a word with variables in it, may stand for.
const MOST_TEXTS: usize = 12;
/// Longest text of a variable, and longest word, that are put together.
const LONGEST_TEXT: usize = 256;

/// Remembers a text that a variable may have.
pub(in super::super) fn add_text(program: &mut Program, file: u32, name: &str, text: &str) {
    if text.is_empty() || text.len() > LONGEST_TEXT {
        return;
    }
    let whole = join_texts(program, file, text);
    let whole = if whole.is_empty() {
        vec![text.to_owned()]
    } else {
        whole
    };
    let texts = program.values.entry((file, name.to_owned())).or_default();
    texts.extend(whole);
    texts.truncate(MOST_TEXTS);
}

/// Returns the texts that a word with variables may be; none if no variable in it is known.
pub(super) fn join_texts(program: &Program, file: u32, text: &str) -> Vec<String> {
    if program.values.is_empty() || text.len() > LONGEST_TEXT || !text.contains('$') {
        return Vec::new();
    }
    let mut whole = vec![String::new()];
    let mut is_known = false;
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        let name = behind[1..].trim_start_matches('{');
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = name.find(|letter| !is_name(letter)).unwrap_or(name.len());
        let is_braced = behind[1..].starts_with('{');
        let after = match name[end..].find('}').filter(|_| is_braced) {
            Some(close) => &name[end + close + 1..],
            None => &name[end..],
        };
        let written = &behind[..behind.len() - after.len()];
        let texts = program.values.get(&(file, name[..end].to_owned()));
        is_known |= texts.is_some();
        let own = [written.to_owned()];
        let texts = texts.map_or(own.as_slice(), Vec::as_slice);
        whole = whole
            .iter()
            .flat_map(|start| {
                texts
                    .iter()
                    .map(move |text| format!("{start}{before}{text}"))
            })
            .take(MOST_TEXTS)
            .collect();
        rest = after;
    }
    for text in &mut whole {
        text.push_str(rest);
    }
    if is_known { whole } else { Vec::new() }
}

//! Which program a command runs: behind `sudo`, in a variable, or under another name.

use super::super::program::Program;
use super::{
    COPIERS, Command, LISTERS, PIPES, READERS, RESOLVERS, SELECTORS, STARTERS, Word, interpreter,
    is_in,
};
use std::borrow::Cow;

/// Programs with a row of their own.
const OTHERS: &str = " curl wget http https xh xhs tar zip 7z rar cp mv tee dd cat git gh glab npm docker gcloud xargs ";
/// Options of programs that start others, with a value.
const VALUES: &str = " -u -g -k -s -C -h -p -a -U -D ";

/// Returns the name of a program without its folder.
pub(super) fn base_name(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    name.strip_suffix(".exe").unwrap_or(name)
}

/// Whether a word names a program that is known.
pub(super) fn is_known(word: &str) -> bool {
    let name = base_name(word);
    [
        READERS, SELECTORS, LISTERS, PIPES, COPIERS, RESOLVERS, OTHERS, STARTERS,
    ]
    .iter()
    .any(|list| is_in(list, name))
        || interpreter(name).is_some()
}

/// Returns the words of a command from its program on.
pub(super) fn find_program<'a>(program: &Program, command: &'a Command) -> Cow<'a, [Word]> {
    let words = expand(program, command);
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.text.as_str();
        let next = words.get(at + 1);
        let is_option = at > 0 && text.starts_with('-');
        let is_number = text
            .trim_end_matches(['s', 'm', 'h'])
            .parse::<u32>()
            .is_ok();
        let is_variable = text.contains('=') && !text.starts_with('-');
        // `command -v curl` asks for a program and runs none.
        if text == "command" && next.is_some_and(|next| matches!(next.text.as_str(), "-v" | "-V")) {
            return Cow::Owned(Vec::new());
        }
        let is_start = is_in(STARTERS, text) || text == "env" && next.is_some();
        if !(is_start || is_option || is_number || is_variable) {
            break;
        }
        at += 1;
        let is_value = |word: &Word| !is_known(&word.text) && !word.text.contains('/');
        if is_option && is_in(VALUES, text) && words.len() > at + 1 {
            at += usize::from(next.is_some_and(is_value));
        }
    }
    let at = at.min(words.len());
    match words {
        Cow::Borrowed(words) => Cow::Borrowed(&words[at..]),
        Cow::Owned(mut words) => Cow::Owned(words.split_off(at)),
    }
}

/// Puts in what variables and aliases stand for.
fn expand<'a>(program: &Program, command: &'a Command) -> Cow<'a, [Word]> {
    let text_of = |at: usize, word: &Word| {
        let may_stand = at == 0 || word.text.starts_with('$');
        if program.texts.is_empty() || !may_stand {
            return None;
        }
        let name = word.text.replace(['{', '}'], "");
        let text = program.texts.get(&(command.file, name))?;
        (at == 0 || text.starts_with('-')).then_some(text)
    };
    let mut words = command.words.iter().enumerate();
    if !words.any(|(at, word)| text_of(at, word).is_some()) {
        return Cow::Borrowed(&command.words);
    }
    let mut expanded = Vec::new();
    for (at, word) in command.words.iter().enumerate() {
        match text_of(at, word) {
            Some(text) => expanded.extend(text.split_whitespace().map(|part| Word {
                text: part.to_owned(),
                nodes: Vec::new(),
                at: word.at,
            })),
            None => expanded.push(word.clone()),
        }
    }
    Cow::Owned(expanded)
}

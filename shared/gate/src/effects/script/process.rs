//! Commands that a program puts together and starts: lists of words, and lines for a shell.

use super::super::graph::Node;
use super::super::program::{Code, Language, MARK, PLACE};
use super::super::tokens::{Kind, Token, embedded_code};
use super::super::{calls, graph::Place};
use super::chain::Chain;
use super::invoke::Argument;
use super::{Script, split_commas};

/// Largest number of words of a command that is put together.
const MOST_WORDS: usize = 4_096;
/// Largest number of variables inside one another of which a command is put together.
const MOST_INSIDE: usize = 8;
/// Largest number of tokens of an expression that is remembered, and of all of them.
const MOST_WRITTEN: usize = 1 << 14;
const MOST_WRITTEN_IN_ALL: usize = 1 << 20;
/// Calls that take each word of a command as an argument.
const TAKES_WORDS: &str = " create_subprocess_exec execl execle execlp execlpe spawnl spawnlp execv execve execvp execvpe spawnv spawnvp posix_spawn ";

/// What a variable is assigned, as it is written; empty if it is too long.
#[derive(Default)]
pub(super) struct Written {
    tokens: Vec<Token>,
    count: usize,
}

/// How words are put into a command line.
#[derive(Clone, Copy)]
struct Form {
    scope: usize,
    is_quoted: bool,
    /// Number of variables around the word.
    depth: usize,
}

impl Script<'_> {
    /// Hands the command that a process is started with to the reader of shells.
    pub(super) fn start_process(
        &mut self,
        path: &str,
        inner: &[Token],
        result: Node,
        (scope, place): (usize, Place),
    ) {
        let mut text = String::new();
        if self.program.is_waiting_full(self.code.place) {
            return;
        }
        let input = self.program.graph.fresh();
        self.program.copy(self.process_input, input, place);
        let last = path.rsplit('.').next().unwrap_or(path);
        let takes_words = calls::is_in(TAKES_WORDS, last);
        let parts: Vec<&[Token]> = split_commas(inner)
            .filter_map(|part| self.positional(part, input, (scope, place)))
            .collect();
        let lists: Vec<Option<Vec<Token>>> = parts
            .iter()
            .map(|part| self.list_of(part, scope, 0))
            .collect();
        // A list is a command with words; a text by itself is a line of a shell.
        let is_line = !takes_words && lists.iter().take(2).all(Option::is_none);
        let form = Form {
            scope,
            is_quoted: !is_line,
            depth: 0,
        };
        let most = if takes_words { MOST_WORDS } else { 3 };
        for (number, (part, list)) in parts.iter().zip(&lists).enumerate().take(most) {
            if let Some(words) = list {
                self.push_words(&mut text, words, form);
            } else if let Kind::Group(b'{', options) = &part[0].kind {
                self.push_options(&mut text, options, input, (form, place));
            } else if number == 0 || !is_line {
                text.push(' ');
                self.push_word(&mut text, part, form);
            }
        }
        self.read_command_line(text, [input, result], place);
    }

    /// An argument without a name, or the command; a named input goes to `input`.
    fn positional<'t>(
        &mut self,
        part: &'t [Token],
        input: Node,
        (scope, place): (usize, Place),
    ) -> Option<&'t [Token]> {
        if !part.get(1).is_some_and(|sign| sign.is_sign("=")) {
            return Some(part);
        }
        match part[0].name() {
            Some("args" | "cmd" | "command") if part.len() > 2 => Some(&part[2..]),
            Some("input" | "stdin") => {
                let value = self.evaluate(&part[2..], scope);
                self.program.copy(value, input, place);
                None
            }
            _ => None,
        }
    }

    /// `{ args: ['-T', path], input: text }`
    fn push_options(
        &mut self,
        text: &mut String,
        options: &[Token],
        input: Node,
        (form, place): (Form, Place),
    ) {
        for option in split_commas(options) {
            match option[0].name() {
                Some("args" | "cmd") if option.len() > 2 => {
                    if let Some(words) = self.list_of(&option[2..], form.scope, 0) {
                        let form = Form {
                            is_quoted: true,
                            ..form
                        };
                        self.push_words(text, &words, form);
                    }
                }
                Some("input") => {
                    let value = self.evaluate(option, form.scope);
                    self.program.copy(value, input, place);
                }
                _ => {}
            }
        }
    }

    /// Hands a command line that is put together here to the reader of shells.
    pub(super) fn read_command_line(
        &mut self,
        text: String,
        [input, output]: [Node; 2],
        place: Place,
    ) {
        let depth = self.code.depth + 1;
        self.program.read_later(Code {
            language: Language::Shell,
            text,
            place,
            is_exact: false,
            input,
            output,
            depth,
        });
    }

    /// Remembers what a variable is assigned, as it is written: a list, or texts that are joined.
    pub(super) fn write_down(&mut self, variable: Node, value: &[Token], is_added: bool) {
        let is_part = |token: &Token| {
            matches!(token.kind, Kind::Text(..) | Kind::Group(b'[', _)) || token.is_sign("+")
        };
        let is_tuple = value
            .first()
            .is_some_and(|first| first.group(b'(').is_some());
        if !is_tuple && !value.iter().any(is_part) {
            return;
        }
        let count = count_tokens(value, MOST_WRITTEN);
        self.written_tokens += count;
        let old = self.written.entry(variable).or_default();
        let sum = if is_added { old.count + count } else { count };
        if sum >= MOST_WRITTEN || self.written_tokens > MOST_WRITTEN_IN_ALL {
            // Forgotten, because no real command is so long. If this variable is started after all,
            // `code-not-followed` says so.
            *old = Written::default();
            return;
        }
        old.count = sum;
        if !is_added {
            old.tokens.clear();
        } else if !old.tokens.is_empty() {
            old.tokens.push(Token {
                at: value[0].at,
                kind: Kind::Sign("+"),
            });
        }
        old.tokens.extend_from_slice(value);
    }

    /// Adds to a list what a call puts into it: `command.append(word)`.
    pub(super) fn write_down_call(
        &mut self,
        path: &str,
        chain: &Chain,
        arguments: &[Argument<'_>],
    ) {
        let [variable] = chain.owners[..] else {
            return;
        };
        let words = match path.rsplit('.').next() {
            Some("append" | "push" | "add" | "extend" | "concat") => arguments,
            Some("insert") => arguments.get(1..).unwrap_or_default(),
            _ => return,
        };
        let Some(first) = words.first().and_then(|word| word.tokens.first()) else {
            return;
        };
        let at = first.at;
        if !self.written.contains_key(&variable) {
            return;
        }
        if path.ends_with(".extend") || path.ends_with(".concat") {
            self.write_down(variable, words[0].tokens, true);
            return;
        }
        let mut list = Vec::new();
        for word in words {
            list.extend_from_slice(word.tokens);
            list.push(Token {
                at,
                kind: Kind::Sign(","),
            });
        }
        let kind = Kind::Group(b'[', list);
        self.write_down(variable, &[Token { at, kind }], true);
    }

    /// The words in a list that stands here, or in a variable, with commas between them.
    fn list_of(&mut self, tokens: &[Token], scope: usize, depth: usize) -> Option<Vec<Token>> {
        let mut words = Vec::new();
        let mut is_list = false;
        for part in tokens.split(|token| token.is_sign("+")) {
            let inner = match part {
                [
                    Token {
                        kind: Kind::Group(b'[', inner),
                        ..
                    },
                ] => Some(inner.clone()),
                [
                    Token {
                        kind: Kind::Group(b'(', inner),
                        ..
                    },
                ] if inner.iter().any(|token| token.is_sign(",")) => Some(inner.clone()),
                [
                    Token {
                        kind: Kind::Name(name),
                        ..
                    },
                ] => self.list_in(name, scope, depth),
                [
                    Token {
                        kind: Kind::Name(name),
                        ..
                    },
                    Token {
                        kind: Kind::Group(b'(', inner),
                        ..
                    },
                ] if matches!(name.as_str(), "list" | "tuple") && depth < MOST_INSIDE => {
                    self.list_of(inner, scope, depth + 1)
                }
                _ => None,
            };
            is_list |= inner.is_some();
            let inner = inner.unwrap_or_else(|| part.to_vec());
            for word in split_commas(&inner) {
                // `*words`
                let spread = match word {
                    [
                        Token {
                            kind: Kind::Sign("*" | "..."),
                            ..
                        },
                        Token {
                            kind: Kind::Name(name),
                            ..
                        },
                    ] => self.list_in(name, scope, depth),
                    _ => None,
                };
                words.extend(spread.unwrap_or_else(|| word.to_vec()));
                words.push(Token {
                    at: word[0].at,
                    kind: Kind::Sign(","),
                });
            }
            if words.len() > 4 * MOST_WORDS {
                self.cut_at(tokens);
                break;
            }
        }
        is_list.then_some(words)
    }

    /// What a variable is assigned, as it is written.
    pub(super) fn written_list(&self, variable: Node) -> &[Token] {
        let written = self.written.get(&variable);
        written.map_or(&[], |written| &written.tokens)
    }

    /// Copies what a variable is assigned, unless so much was copied that no more code will be read.
    fn take_written(&mut self, variable: Node) -> Option<Vec<Token>> {
        if self.program.is_waiting_full(self.code.place) {
            return None;
        }
        let written = self.written.get(&variable)?;
        if written.tokens.is_empty() {
            let place = self.code.place;
            self.program.graph.cut_at(place);
            return None;
        }
        let count = written.count;
        let tokens = written.tokens.clone();
        self.program.add_waiting(count);
        Some(tokens)
    }

    /// Adds a text to a command line, unless so much was added that no more code will be read.
    fn push_text(&mut self, text: &mut String, value: &str) {
        if !self.program.is_waiting_full(self.code.place) {
            self.program.add_waiting(value.len());
            *text += value;
        }
    }

    /// Remembers that what stands here is not followed.
    fn cut_at(&mut self, tokens: &[Token]) {
        let place = self.place(tokens.first().map_or(0, |token| token.at));
        self.program.graph.cut_at(place);
    }

    fn list_in(&mut self, name: &str, scope: usize, depth: usize) -> Option<Vec<Token>> {
        let variable = self.variable(scope, name);
        let list = self.take_written(variable)?;
        // A variable that is made of itself has no end.
        let is_own = |token: &Token| token.name() == Some(name);
        let list = match list.iter().position(is_own) {
            Some(at) => list.get(at + 2..)?.to_vec(),
            None => list,
        };
        if depth >= MOST_INSIDE {
            self.cut_at(&list);
            return None;
        }
        self.list_of(&list, scope, depth + 1)
    }

    fn push_words(&mut self, text: &mut String, words: &[Token], form: Form) {
        for (number, word) in split_commas(words).enumerate() {
            if number >= MOST_WORDS {
                self.cut_at(word);
                return;
            }
            text.push(' ');
            self.push_word(text, word, form);
        }
    }

    /// Writes an expression as a word, or as a part of a command line; a value that is not written
    /// there stands in it by its number.
    fn push_word(&mut self, text: &mut String, tokens: &[Token], form: Form) {
        if self.push_joined(text, tokens, form) || self.push_plain(text, tokens, form) {
            return;
        }
        if tokens.len() > 1 {
            for token in tokens {
                if let Kind::Text(value, _) = &token.kind {
                    self.push_text(text, &quoted(value, form));
                }
            }
        }
        let value = self.evaluate(tokens, form.scope);
        *text += &format!("{MARK}{value}{MARK}");
    }

    /// A text, a variable with one, or the path of the interpreter.
    fn push_plain(&mut self, text: &mut String, tokens: &[Token], form: Form) -> bool {
        match tokens {
            [
                Token {
                    kind: Kind::Text(value, code),
                    ..
                },
            ] => {
                if code.is_empty() {
                    self.push_text(text, &quoted(value, form));
                    return true;
                }
                // The values stand where their code stands.
                let node = self.evaluate(code, form.scope);
                let whole = quoted(&without_code(value, self.code.language), form);
                self.push_text(text, &whole.replace(PLACE, &format!("{MARK}{node}{MARK}")));
                true
            }
            [
                Token {
                    kind: Kind::Name(name),
                    ..
                },
            ] => {
                let variable = self.variable(form.scope, name);
                if let Some(value) = self.constants.get(&variable) {
                    let value = quoted(value, form);
                    self.push_text(text, &value);
                    return true;
                }
                let written = self.written.get(&variable).filter(|written| {
                    matches!(
                        written.tokens.first(),
                        Some(Token {
                            kind: Kind::Text(..),
                            ..
                        })
                    ) || written.tokens.iter().any(|token| token.is_sign("+"))
                });
                if written.is_none() || form.depth >= MOST_INSIDE {
                    return false;
                }
                let Some(written) = self.take_written(variable) else {
                    return false;
                };
                let depth = form.depth + 1;
                self.push_word(text, &written, Form { depth, ..form });
                true
            }
            [
                Token {
                    kind: Kind::Name(_),
                    ..
                },
                dot,
                last,
            ] if dot.is_sign(".") && matches!(last.name(), Some("executable" | "execPath")) => {
                let is_python = self.code.language == Language::Python;
                *text += if is_python { "python3" } else { "node" };
                true
            }
            _ => false,
        }
    }

    /// Texts that are joined: `a + b`, `'%s' % a`, `'{}'.format(a)`, `' '.join(a)`,
    /// `shlex.split(a)`.
    fn push_joined(&mut self, text: &mut String, tokens: &[Token], form: Form) -> bool {
        let python = self.code.language == Language::Python;
        if tokens.iter().any(|token| token.is_sign("+")) {
            for part in tokens.split(|token| token.is_sign("+")) {
                if !part.is_empty() {
                    self.push_word(text, part, form);
                }
            }
            return true;
        }
        if let [
            Token {
                kind: Kind::Text(value, _),
                ..
            },
            Token {
                kind: Kind::Sign("%"),
                ..
            },
            values @ ..,
        ] = tokens
            && python
        {
            self.push_filled(text, &filled(value, '%'), values, form);
            return true;
        }
        let [
            object @ ..,
            dot,
            method,
            Token {
                kind: Kind::Group(b'(', inner),
                ..
            },
        ] = tokens
        else {
            return false;
        };
        if !dot.is_sign(".") {
            return false;
        }
        match (object, method.name()) {
            (
                [
                    Token {
                        kind: Kind::Text(value, _),
                        ..
                    },
                ],
                Some("format"),
            ) if python => {
                self.push_filled(text, &filled(value, '{'), inner, form);
            }
            (object, Some("join")) => {
                // The list stands behind the point in Python, and before it in JavaScript.
                let list = self.list_of(inner, form.scope, form.depth);
                let list = list.or_else(|| self.list_of(object, form.scope, form.depth));
                let Some(words) = list else {
                    return false;
                };
                self.push_words(text, &words, form);
            }
            ([only], Some("split" | "quote")) if only.name() == Some("shlex") => {
                self.push_word(text, inner, form);
            }
            _ => return false,
        }
        true
    }

    fn push_filled(&mut self, text: &mut String, pattern: &str, values: &[Token], form: Form) {
        let value = self.evaluate(values, form.scope);
        let filled = quoted(pattern, form).replace(PLACE, &format!("{MARK}{value}{MARK}"));
        self.push_text(text, &filled);
    }
}

/// Counts tokens with those inside, up to a number.
fn count_tokens(tokens: &[Token], most: usize) -> usize {
    let mut count = 0;
    let mut open = vec![tokens];
    while let Some(tokens) = open.pop() {
        for token in tokens {
            count += 1;
            if count >= most {
                return count;
            }
            if let Kind::Group(_, inner) | Kind::Text(_, inner) = &token.kind {
                open.push(inner);
            }
        }
    }
    count
}

/// A word as a shell reads it.
fn quoted(value: &str, form: Form) -> String {
    if !form.is_quoted {
        return value.to_owned();
    }
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('$', "\\$").replace('`', "\\`"))
}

/// Puts [`PLACE`] where values stand in a pattern: `%s`, `%(name)s` or `{name}`.
fn filled(pattern: &str, sign: char) -> String {
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find(sign) {
        text += &rest[..at];
        text.push(PLACE);
        let after = &rest[at + 1..];
        let end = match (sign, after.starts_with('(')) {
            ('{', _) => after.find('}').map_or(after.len(), |end| end + 1),
            (_, true) => after.find(')').map_or(after.len(), |end| end + 2),
            _ => 1,
        };
        rest = after.get(end..).unwrap_or_default();
    }
    text + rest
}

/// Puts [`PLACE`] where code stands in a text.
fn without_code(value: &str, language: Language) -> String {
    let mut text = value.replace(PLACE, "");
    for part in embedded_code(value, language) {
        for form in [
            format!("${{{part}}}"),
            format!("{{{part}}}"),
            format!("$({part})"),
            format!("${part}"),
        ] {
            if part.len() > 1 || form.len() > 3 {
                text = text.replacen(&form, &PLACE.to_string(), 1);
            }
        }
    }
    text
}

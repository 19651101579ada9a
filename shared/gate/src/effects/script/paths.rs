//! Paths that are put together from several texts: `folder + '/' + name`, `f'{home}/.{name}'`.

use super::super::graph::Node;
use super::super::program::Language;
use super::super::stores::find_store;
use super::super::tokens::{Kind, Token};
use super::names::only_text;
use super::{LONGEST_JOINED, Script, calls, split_commas};

/// Largest number of parts of a path that are joined to find a file of secrets, and of texts that a
/// variable in it may have.
const MOST_JOINED: usize = 12;
/// Longest text that is a part of a path.
const LONGEST_PART: usize = 256;
/// Names of calls and commands that join paths.
const JOINS: &str = " join joinpath join-path resolve expanduser path combine ";

impl Script<'_> {
    /// Finds a file of secrets whose path is put together from the texts of an expression.
    pub(super) fn find_joined(&mut self, tokens: &[Token], result: Node, scope: usize) {
        let has_text = |token: &Token| matches!(token.kind, Kind::Text(..) | Kind::Sign("+"));
        let is_join = tokens.first().and_then(Token::name);
        let is_join = is_join.is_some_and(|name| name.eq_ignore_ascii_case("join-path"));
        if tokens.len() > LONGEST_JOINED || !is_join && !tokens.iter().any(has_text) {
            return;
        }
        let Some((parts, is_filled)) = self.parts_of(tokens, scope) else {
            return;
        };
        let stores = |texts: &[String]| texts.iter().find_map(|text| find_store(text));
        let mut kind = None;
        for (texts, is_filled) in parts.iter().zip(is_filled) {
            let found = stores(texts);
            if found.is_some() && !is_filled {
                // The text itself is one.
                return;
            }
            kind = kind.or(found);
        }
        if parts.len() > 1 {
            kind = kind.or_else(|| {
                ["/", ""]
                    .iter()
                    .find_map(|sign| stores(&joined(&parts, sign)))
            });
        }
        if let Some(kind) = kind {
            let place = self.place(tokens[0].at);
            self.program.add_secret(result, kind, false, place);
        }
    }

    /// The texts of an expression, each with those that it may be, and whether a variable in it is
    /// replaced; `None` if there are too many or too long ones.
    fn parts_of(
        &mut self,
        tokens: &[Token],
        scope: usize,
    ) -> Option<(Vec<Vec<String>>, Vec<bool>)> {
        let (mut parts, mut filled) = (Vec::new(), Vec::new());
        for token in tokens {
            match &token.kind {
                Kind::Text(text, code) => {
                    if text.len() > LONGEST_PART {
                        return None;
                    }
                    let texts = if code.is_empty() {
                        None
                    } else {
                        self.fill(text, scope)
                    };
                    filled.push(texts.is_some());
                    parts.push(texts.unwrap_or_else(|| vec![text.clone()]));
                }
                Kind::Name(name) => {
                    let texts = self.texts_of(name, scope);
                    if !texts.is_empty() {
                        filled.push(false);
                        parts.push(texts);
                    }
                }
                _ => {}
            }
            if parts.len() > MOST_JOINED {
                return None;
            }
        }
        Some((parts, filled))
    }

    /// The texts that a variable may have.
    fn texts_of(&mut self, name: &str, scope: usize) -> Vec<String> {
        let variable = self.variable(scope, name);
        match (self.choices.get(&variable), self.constants.get(&variable)) {
            (Some(texts), _) => texts.clone(),
            (None, Some(text)) if text.len() <= LONGEST_PART => vec![text.clone()],
            _ => Vec::new(),
        }
    }

    /// Puts the texts of variables into a text with code: `{name}`, `${name}` or `$name`.
    fn fill(&mut self, text: &str, scope: usize) -> Option<Vec<String>> {
        let sign = match self.code.language {
            Language::Python => '{',
            _ => '$',
        };
        let mut whole = vec![String::new()];
        let mut is_known = false;
        let mut rest = text;
        while let Some(at) = rest.find(sign) {
            let (before, behind) = rest.split_at(at);
            let name = behind[1..].trim_start_matches('{');
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
            let end = name.find(|letter| !is_part(letter)).unwrap_or(name.len());
            let after = name[end..].strip_prefix('}').unwrap_or(&name[end..]);
            let mut texts = self.texts_of(&name[..end], scope);
            is_known |= !texts.is_empty();
            if texts.is_empty() {
                texts.push(behind[..behind.len() - after.len()].to_owned());
            }
            whole = whole
                .iter()
                .flat_map(|start| {
                    texts
                        .iter()
                        .map(move |text| format!("{start}{before}{text}"))
                })
                .take(MOST_JOINED)
                .collect();
            rest = after;
        }
        for text in &mut whole {
            text.push_str(rest);
        }
        is_known.then_some(whole)
    }

    /// Remembers the texts that the variable of a loop has: `for name in ['a', 'b']`.
    pub(super) fn remember_choices(&mut self, target: &[Token], value: &[Token], scope: usize) {
        let declared = |token: &Token| matches!(token.name(), Some("const" | "let" | "var"));
        let from = target
            .iter()
            .position(|token| !declared(token))
            .unwrap_or(0);
        let [only] = &target[from..] else {
            return;
        };
        let Some(name) = only.name() else {
            return;
        };
        let list: Vec<Token>;
        let value = match value {
            [at, rest @ ..] if at.is_sign("@") => rest,
            [only] if only.name().is_some() => {
                let variable = self.variable(scope, only.name().unwrap_or_default());
                list = self
                    .written_list(variable)
                    .iter()
                    .take(1)
                    .cloned()
                    .collect();
                &list
            }
            _ => value,
        };
        let inner = match value {
            [
                Token {
                    kind: Kind::Group(b'[' | b'(' | b'{', inner),
                    ..
                },
            ] => inner.as_slice(),
            _ => value,
        };
        let texts = split_commas(inner).filter_map(only_text);
        let texts = texts.filter(|text| text.len() <= LONGEST_PART);
        let texts: Vec<String> = texts.take(MOST_JOINED).map(str::to_owned).collect();
        if !texts.is_empty() {
            let variable = self.variable(scope, name);
            self.choices.insert(variable, texts);
        }
    }

    /// Remembers the texts of the variable of a comprehension, which stands behind what uses it.
    pub(super) fn remember_comprehension(&mut self, tokens: &[Token], scope: usize) {
        let mut words = tokens.split(|token| token.name() == Some("for"));
        let Some(rest) = words.nth(1) else {
            return;
        };
        if let Some(at) = rest.iter().position(|token| token.name() == Some("in")) {
            let value = &rest[at + 1..];
            let end = value.iter().position(|token| token.name() == Some("if"));
            self.remember_choices(&rest[..at], &value[..end.unwrap_or(value.len())], scope);
        }
    }

    /// Remembers the end of a path that a variable is assigned: `home / '.docker'`.
    pub(super) fn remember_path(&mut self, variable: Node, value: &[Token], scope: usize) {
        if value.len() > MOST_JOINED {
            return;
        }
        let is_join = |token: &Token| {
            let name = token.name().map(str::to_ascii_lowercase);
            token.is_sign("/") || name.is_some_and(|name| calls::is_in(JOINS, &name))
        };
        if !value.iter().any(is_join) {
            return;
        }
        let inner = value
            .iter()
            .flat_map(|token| token.group(b'(').unwrap_or_default());
        let flat: Vec<Token> = value.iter().chain(inner).cloned().collect();
        let Some((parts, _)) = self.parts_of(&flat, scope) else {
            return;
        };
        let texts = joined(&parts, "/");
        if !parts.is_empty() && texts.iter().all(|text| text.len() <= LONGEST_PART) {
            self.choices.insert(variable, texts);
        }
    }
}

/// The texts that the parts of a path may be together.
fn joined(parts: &[Vec<String>], sign: &str) -> Vec<String> {
    let mut whole = vec![String::new()];
    for (number, texts) in parts.iter().enumerate() {
        let sign = if number > 0 { sign } else { "" };
        whole = whole
            .iter()
            .flat_map(|start| texts.iter().map(move |text| format!("{start}{sign}{text}")))
            .take(MOST_JOINED)
            .collect();
    }
    whole
}

//! Statements: imports, loops and assignments.

use super::super::calls;
use super::super::graph::{Flow, Node};
use super::super::program::Language;
use super::super::tokens::{Kind, Token};
use super::{LONGEST_COMMAND, Script, split_commas};

impl Script<'_> {
    pub(super) fn read_import(&mut self, tokens: &[Token]) {
        for token in tokens {
            let path = match &token.kind {
                Kind::Name(name) | Kind::Text(name, _) => name.as_str(),
                _ => continue,
            };
            if let Some(other) = self.program.own_file(path) {
                let file = self.file();
                self.program.imports.push((file, other));
            }
        }
    }

    /// `with a as b:`, `for a in b:`, `for (const a of b) {…}`.
    pub(super) fn read_loop(&mut self, tokens: &[Token], scope: usize) {
        let head = tokens.first().and_then(|token| token.group(b'('));
        if let Some(head) = head {
            self.read_taken(head, scope);
            self.evaluate(&tokens[1..], scope);
            return;
        }
        let end = tokens
            .iter()
            .position(|token| token.is_sign(":"))
            .unwrap_or(tokens.len());
        for part in split_commas(&tokens[..end]) {
            self.read_taken(part, scope);
        }
        let is_loop = tokens[..end].iter().any(|token| token.name() == Some("in"));
        if is_loop {
            // `for a, b in c`: the commas part names, not values.
            self.read_taken(&tokens[..end], scope);
        }
        if end + 1 < tokens.len() {
            self.read_statement(&tokens[end + 1..], scope);
        }
    }

    pub(super) fn read_taken(&mut self, tokens: &[Token], scope: usize) {
        let word = |token: &Token| matches!(token.name(), Some("as" | "in" | "of"));
        let Some(at) = tokens.iter().position(word) else {
            self.read_assignment(tokens, scope, false);
            return;
        };
        let (before, after) = (&tokens[..at], &tokens[at + 1..]);
        let is_as = tokens[at].name() == Some("as");
        let (target, value) = if is_as {
            (after, before)
        } else {
            (before, after)
        };
        let value = self.evaluate(value, scope);
        self.assign(target, value, scope);
    }

    pub(super) fn read_assignment(&mut self, tokens: &[Token], scope: usize, is_declared: bool) {
        let is_assignment = |token: &Token| matches!(token.kind, Kind::Sign("=" | ":=" | "+="));
        let Some(at) = tokens.iter().position(is_assignment) else {
            self.evaluate(tokens, scope);
            return;
        };
        let (target, value) = (&tokens[..at], &tokens[at + 1..]);
        let name = match target {
            [only] => only.name(),
            // `exports.name = …`
            [.., dot, last] if dot.is_sign(".") => last.name(),
            [only, colon, ..] if colon.is_sign(":") => only.name(),
            _ => None,
        };
        // A name in a function of Python is its own.
        let is_local = is_declared || self.code.language == Language::Python && scope > 0;
        if is_local {
            for token in target {
                match &token.kind {
                    Kind::Name(name) => self.declare(scope, &name.clone()),
                    Kind::Group(_, inner) => {
                        for name in inner.iter().filter_map(Token::name) {
                            self.declare(scope, name);
                        }
                    }
                    // What stands behind is a member or a type.
                    _ if token.is_sign(",") => {}
                    _ => break,
                }
            }
        }
        if let Some(name) = name {
            if let Some(end) = self.read_function(value, name, scope) {
                self.evaluate(&value[end..], scope);
                return;
            }
            let variable = self.variable(scope, name);
            match value {
                [
                    Token {
                        kind: Kind::Text(text, code),
                        ..
                    },
                ] if code.is_empty() => {
                    self.constants.insert(variable, text.clone());
                }
                [
                    Token {
                        kind: Kind::Group(b'[', inner),
                        ..
                    },
                ] if inner.len() < LONGEST_COMMAND => {
                    self.lists.insert(variable, value.to_vec());
                }
                _ => {}
            }
        }
        let value = self.evaluate(value, scope);
        self.assign(target, value, scope);
    }

    /// Puts a value into the names of a target.
    pub(super) fn assign(&mut self, target: &[Token], value: Node, scope: usize) {
        let mut path = String::new();
        for (at, token) in target.iter().enumerate() {
            let place = self.place(token.at);
            match &token.kind {
                Kind::Name(name) if matches!(name.as_str(), "const" | "let" | "var") => {}
                Kind::Name(name) => {
                    let is_member =
                        at > 0 && (target[at - 1].is_sign(".") || target[at - 1].is_sign("->"));
                    if is_member {
                        path = format!("{path}.{name}");
                    } else {
                        path.clone_from(name);
                    }
                    let flow = if calls::is_header(name) {
                        Flow::Header
                    } else {
                        Flow::Copy
                    };
                    let has_member = target.get(at + 1).is_some_and(|next| next.is_sign("."));
                    if has_member && matches!(name.as_str(), "self" | "this") {
                        continue;
                    }
                    let variable = self.variable(scope, &path);
                    self.program.graph.edge(value, variable, flow, place);
                    // A type stands behind a colon.
                    if target.get(at + 1).is_some_and(|next| next.is_sign(":")) {
                        break;
                    }
                }
                // `a[b] = c` changes `a` alone.
                Kind::Group(b'[', _) if at > 0 => {}
                Kind::Group(_, inner) => {
                    for name in inner.iter().filter_map(Token::name) {
                        let variable = self.variable(scope, name);
                        self.program.copy(value, variable, place);
                    }
                }
                _ => {}
            }
        }
    }
}

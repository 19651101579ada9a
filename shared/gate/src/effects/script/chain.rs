//! Chains of members and calls: `a.b(c)['d'].e`.

use super::super::calls;
use super::super::graph::{Flow, Node, Place};
use super::super::program::{ALL, Language};
use super::super::stores::ENVIRONMENT;
use super::super::tokens::{Kind, Token};
use super::names::add_member;
use super::types::skip_angles;
use super::{LONGEST_PATH, Script, split_items};

/// Largest number of variables of a chain that a call changes.
const MOST_OWNERS: usize = 4;

/// The names of a chain up to one of its calls.
#[derive(Default)]
pub(super) struct Chain {
    /// As they are written.
    pub written: String,
    /// With the module that they come from.
    pub known: String,
    /// The variables in which the value before the call is.
    pub owners: Vec<Node>,
}

impl Chain {
    fn push(&mut self, name: &str) {
        if self.written.len() > LONGEST_PATH {
            self.written.clear();
        }
        if self.known.len() > LONGEST_PATH {
            self.known.clear();
        }
        self.written = format!("{}.{name}", self.written);
        add_member(&mut self.known, name);
    }
}

impl Script<'_> {
    /// Evaluates a name, text or bracket with the members and calls behind it.
    pub(super) fn evaluate_chain(
        &mut self,
        tokens: &[Token],
        begun: usize,
        scope: usize,
    ) -> (Node, usize) {
        let place = self.place(tokens[begun].at);
        let is_compared = is_compared(tokens, begun);
        let (mut value, mut chain) = self.begin_chain(tokens, begun, scope);
        let mut at = begun + 1;
        while let Some(token) = tokens.get(at) {
            let next = tokens.get(at + 1);
            match &token.kind {
                Kind::Sign("." | "?." | "::" | "->") => {
                    let Some(name) = next.and_then(Token::name) else {
                        at += 1;
                        continue;
                    };
                    chain.push(name);
                    self.trace(&mut chain, scope);
                    at += 2;
                    let is_call = tokens
                        .get(at)
                        .is_some_and(|token| token.group(b'(').is_some());
                    if !is_call {
                        value = self.member(&mut chain, value, (scope, place));
                        if !is_compared {
                            self.find_given(&chain.known, tokens.get(at), value, place);
                        }
                    } else if chain.known == "os.environ.items" || chain.known == "os.environ.copy"
                    {
                        self.program.add_secret(value, ENVIRONMENT, true, place);
                    }
                }
                Kind::Group(b'(', inner) => {
                    let known = self.path_of_call(&chain.known, inner, scope);
                    value = self.call(&chain, value, inner, (scope, place));
                    if chain.written.len() > LONGEST_PATH {
                        chain.written.clear();
                        chain.known.clear();
                    }
                    chain.written.push_str("()");
                    chain.known = known.unwrap_or_else(|| format!("{}()", chain.known));
                    at += 1;
                }
                Kind::Group(b'[', inner) => {
                    let is_named = self.choose(&mut chain, &mut value, inner, (scope, place));
                    at += 1;
                    if is_named {
                        self.find_given(&chain.known, tokens.get(at), value, place);
                    }
                }
                // `post<Answer>(…)`
                Kind::Sign("<") if self.code.language == Language::JavaScript => {
                    match skip_angles(tokens, at) {
                        Some(end) => at = end,
                        None => break,
                    }
                }
                // A chain goes on in the next line.
                Kind::Line(_)
                    if next.is_some_and(|next| next.is_sign(".") || next.is_sign("?.")) =>
                {
                    at += 1;
                }
                _ => break,
            }
        }
        (value, at)
    }

    /// Replaces a value by its part: `a[b]`. Returns whether a text names the part.
    fn choose(
        &mut self,
        chain: &mut Chain,
        value: &mut Node,
        inner: &[Token],
        (scope, place): (usize, Place),
    ) -> bool {
        let part = self.program.graph.fresh();
        self.program.graph.edge(*value, part, Flow::Narrow, place);
        self.evaluate(inner, scope);
        *value = part;
        // `requests['post']`
        match inner {
            [
                Token {
                    kind: Kind::Text(name, code),
                    ..
                },
            ] if code.is_empty() && name.len() < 64 => {
                chain.push(name);
                self.trace(chain, scope);
                self.take_exported(&chain.known, part, place);
                true
            }
            _ => false,
        }
    }

    /// Returns the value of the last member of a chain.
    fn member(&mut self, chain: &mut Chain, value: Node, (scope, place): (usize, Place)) -> Node {
        let last = chain
            .written
            .rsplit('.')
            .next()
            .unwrap_or_default()
            .to_owned();
        let member = self.variable(scope, &chain.written);
        let part = self.program.graph.fresh();
        // The public half of a key is for everybody.
        if !matches!(last.as_str(), "publicKey" | "public_key") {
            self.program.graph.edge(value, part, Flow::Narrow, place);
        }
        self.program.copy(member, part, place);
        if chain.owners.len() < MOST_OWNERS {
            chain.owners.push(member);
        }
        // A variable of another file of the skill.
        if chain.known.starts_with("./") {
            let variable = self.variable(scope, &last);
            self.program.copy(variable, part, place);
        }
        self.take_exported(&chain.known, part, place);
        if self.properties.contains(&last) {
            let returned = self.program.returned(self.file(), &last);
            self.program.copy(returned, part, place);
        }
        part
    }

    /// Replaces the names of a chain by the path that they stand for.
    fn trace(&self, chain: &mut Chain, scope: usize) {
        if let Some(path) = self.path_of(scope, &chain.written) {
            chain.known = path;
        }
    }

    fn begin_chain(&mut self, tokens: &[Token], begun: usize, scope: usize) -> (Node, Chain) {
        let place = self.place(tokens[begun].at);
        let mut chain = Chain::default();
        let value = match &tokens[begun].kind {
            Kind::Name(name) => {
                chain.written.clone_from(name);
                chain.known.clone_from(name);
                let variable = self.variable(scope, name);
                if !matches!(name.as_str(), "self" | "this") {
                    chain.owners.push(variable);
                }
                self.trace(&mut chain, scope);
                let part = self.program.graph.fresh();
                let next = tokens.get(begun + 1);
                if !is_compared(tokens, begun) && self.find_given(&chain.known, next, part, place) {
                    self.program.copy(variable, part, place);
                    part
                } else {
                    variable
                }
            }
            Kind::Text(text, code) => self.text_value(text, code, place, scope),
            Kind::Group(b'{', inner) => {
                let before = begun.checked_sub(1).map(|before| &tokens[before]);
                let is_table = before.is_some_and(|sign| sign.is_sign("@"));
                self.evaluate_braces(inner, is_table, scope)
            }
            Kind::Group(_, inner) => {
                // A type of PowerShell: `[scriptblock]::Create(…)`; or `(await import('a')).b()`.
                if self.code.language == Language::PowerShell
                    && let Some(name) = inner.last().and_then(Token::name)
                {
                    chain.written.push_str(name);
                    chain.known.push_str(name);
                } else if let Some(path) = self.path_of_expression(inner, scope) {
                    chain.known = path;
                }
                let node = self.program.graph.fresh();
                for part in split_items(inner, self.code.language) {
                    let value = self.evaluate(part, scope);
                    self.program.copy(value, node, place);
                }
                self.find_joined(inner, node, scope);
                node
            }
            _ => self.program.graph.fresh(),
        };
        (value, chain)
    }

    /// Finds what a program is given from outside: the whole environment, which is a secret, the
    /// words of its command and its standard input. Returns whether the path is one of these.
    fn find_given(&mut self, path: &str, next: Option<&Token>, value: Node, place: Place) -> bool {
        match path {
            "os.environ" | "process.env" | "Deno.env" | "Bun.env" => {
                // A single variable is not a secret, and the value of `process.env && a` is `a`.
                let is_part = next.is_some_and(|next| {
                    [".", "?.", "&&"].iter().any(|sign| next.is_sign(sign))
                        || next.group(b'[').is_some()
                        || next.name() == Some("and")
                });
                if !is_part {
                    self.program.add_secret(value, ENVIRONMENT, true, place);
                }
            }
            "sys.argv" | "process.argv" | "Deno.args" | "Bun.argv" | "ARGV" | "ARGF" => {
                self.take_words(value, place);
            }
            "args" if self.code.language == Language::PowerShell => self.take_words(value, place),
            "sys.stdin" | "process.stdin" | "Deno.stdin" | "Bun.stdin" | "STDIN" | "Console.In" => {
                self.program.copy(self.code.input, value, place);
            }
            _ => return false,
        }
        true
    }

    /// Puts a variable that a shell hands to the script into a value: `os.environ['NAME']`.
    pub(super) fn take_exported(&mut self, path: &str, value: Node, place: Place) {
        let Some((base, name)) = path.rsplit_once('.') else {
            return;
        };
        if matches!(base, "os.environ" | "process.env" | "Deno.env" | "Bun.env") {
            let variable = self.program.variable(self.file(), 0, name);
            self.program.copy(variable, value, place);
        }
    }

    /// Puts the words that the program is started with into a value.
    pub(super) fn take_words(&mut self, value: Node, place: Place) {
        let words = self.program.argument(self.file(), "", ALL);
        self.program.copy(words, value, place);
    }
}

/// Whether a value is only compared: `env is os.environ`, `name in os.environ`.
fn is_compared(tokens: &[Token], at: usize) -> bool {
    at.checked_sub(1)
        .and_then(|before| tokens[before].name())
        .is_some_and(|word| matches!(word, "is" | "in"))
}

/// Whether what a path names signs a request.
pub(super) fn is_in_header(path: &str) -> bool {
    path.split('.').any(calls::is_header)
}

//! Reads Python, JavaScript and PowerShell as far as values go: assignments, calls, returned values,
//! and functions with their parameters.

mod functions;
mod invoke;
mod power;
mod statements;

use super::calls;
use super::graph::{Flow, Node, Place};
use super::program::{Code, Language, Program};
use super::stores::{ENVIRONMENT, find_store};
use super::tokens::{Kind, Token, read_tokens};
use std::collections::{HashMap, HashSet};

/// Largest number of parts of a path that are joined to find a file of secrets.
const MOST_JOINED: usize = 12;
/// Largest number of expressions and statements inside one another.
const MOST_NESTED: u32 = 120;
/// Longest path of members (`a.b.c`), in bytes. Each beginning of a path is a variable.
const LONGEST_PATH: usize = 128;
/// Longest list that is remembered as the words of a command.
const LONGEST_COMMAND: usize = 64;

/// A function, or the file itself.
struct Scope {
    /// Its number in the skill.
    number: usize,
    parent: Option<usize>,
    function: String,
    declared: HashSet<String>,
}

pub(super) struct Script<'a> {
    pub code: &'a Code,
    pub program: &'a mut Program,
    scopes: Vec<Scope>,
    /// Texts of variables that are assigned once as they stand.
    constants: HashMap<Node, String>,
    /// Lists of variables, which may be commands.
    lists: HashMap<Node, Vec<Token>>,
    /// Number of expressions and statements around the current one.
    nested: u32,
}

/// Puts code into the graph.
pub(super) fn read_script(code: &Code, program: &mut Program) {
    let (tokens, is_cut) = read_tokens(&code.text, code.language);
    if is_cut {
        program.graph.cut_at(code.place);
    }
    let mut script = Script {
        code,
        program,
        scopes: vec![Scope {
            number: 0,
            parent: None,
            function: String::new(),
            declared: HashSet::new(),
        }],
        constants: HashMap::new(),
        lists: HashMap::new(),
        nested: 0,
    };
    script.read_block(&tokens, 0);
}

/// Splits tokens at commas.
fn split_commas(tokens: &[Token]) -> impl Iterator<Item = &[Token]> {
    tokens
        .split(|token| token.is_sign(","))
        .map(trim_lines)
        .filter(|part| !part.is_empty())
}

fn trim_lines(mut tokens: &[Token]) -> &[Token] {
    let is_end = |token: &Token| matches!(token.kind, Kind::Line(_)) || token.is_sign(";");
    while let Some((_, rest)) = tokens.split_first().filter(|(first, _)| is_end(first)) {
        tokens = rest;
    }
    while let Some((_, rest)) = tokens.split_last().filter(|(last, _)| is_end(last)) {
        tokens = rest;
    }
    tokens
}

/// Splits tokens into statements, each with its indentation.
fn split_statements(tokens: &[Token]) -> Vec<(usize, &[Token])> {
    let mut statements = Vec::new();
    let (mut from, mut indent) = (0, 0);
    for (at, token) in tokens.iter().enumerate() {
        let next = match token.kind {
            Kind::Line(next) => {
                let goes_on = tokens.get(at + 1).is_some_and(|next| {
                    // `. ./lib.ps1` begins a statement.
                    let is_near = tokens
                        .get(at + 2)
                        .is_some_and(|name| name.at == next.at + 1);
                    next.is_sign(".") && is_near || next.is_sign("?.") || next.is_sign("|")
                });
                let is_open = at.checked_sub(1).is_some_and(|before| {
                    ["=", "+", "&&", "||", "?", ",", "=>", "|"]
                        .iter()
                        .any(|sign| tokens[before].is_sign(sign))
                });
                if goes_on || is_open {
                    continue;
                }
                next
            }
            _ if token.is_sign(";") => indent,
            _ => continue,
        };
        statements.push((indent, trim_lines(&tokens[from..at])));
        (from, indent) = (at + 1, next);
    }
    statements.push((indent, trim_lines(&tokens[from..])));
    statements
}

impl Script<'_> {
    pub(super) fn place(&self, at: usize) -> Place {
        let offset = if self.code.is_exact { at } else { 0 };
        Place {
            offset: self.code.place.offset + u32::try_from(offset).unwrap_or_default(),
            ..self.code.place
        }
    }

    fn file(&self) -> u32 {
        self.code.place.file
    }

    /// The variable of this name that is seen from a scope.
    pub(super) fn variable(&mut self, scope: usize, name: &str) -> Node {
        let mut at = scope;
        while !self.scopes[at].declared.contains(name) {
            match self.scopes[at].parent {
                Some(parent) => at = parent,
                None => break,
            }
        }
        let number = self.scopes[at].number;
        self.program.variable(self.file(), number, name)
    }

    fn declare(&mut self, scope: usize, name: &str) {
        self.scopes[scope].declared.insert(name.to_owned());
    }

    fn read_block(&mut self, tokens: &[Token], scope: usize) {
        // Bodies of Python: the indentation of the head, and the scope.
        let mut bodies: Vec<(usize, usize)> = Vec::new();
        for (indent, statement) in split_statements(tokens) {
            if statement.is_empty() {
                continue;
            }
            while bodies.last().is_some_and(|body| body.0 >= indent) {
                bodies.pop();
            }
            let scope = bodies.last().map_or(scope, |body| body.1);
            if let Some(body) = self.read_statement(statement, scope) {
                bodies.push((indent, body));
            }
        }
    }

    /// Reads a statement. Returns the scope of the function whose body follows, if it is the head
    /// of one.
    fn read_statement(&mut self, tokens: &[Token], scope: usize) -> Option<usize> {
        if self.nested >= MOST_NESTED || self.program.graph.is_piece_full() {
            let place = self.place(tokens.first().map_or(0, |token| token.at));
            self.program.graph.cut_at(place);
            return None;
        }
        self.nested += 1;
        let body = self.read_nested_statement(tokens, scope);
        self.nested -= 1;
        body
    }

    fn read_nested_statement(&mut self, mut tokens: &[Token], scope: usize) -> Option<usize> {
        let mut is_declared = false;
        while let Some((first, rest)) = tokens.split_first() {
            match first.name() {
                Some("const" | "let" | "var") => is_declared = true,
                Some("export" | "default" | "async" | "public" | "static" | "private") => {}
                _ => break,
            }
            tokens = rest;
        }
        let (first, rest) = tokens.split_first()?;
        match first.name() {
            Some("def") if self.code.language == Language::Python => {
                let name = rest
                    .first()
                    .and_then(Token::name)
                    .unwrap_or_default()
                    .to_owned();
                let params = rest
                    .get(1)
                    .and_then(|token| token.group(b'('))
                    .unwrap_or_default();
                let inner = self.open_function(&name, params, scope);
                let body = rest.iter().position(|token| token.is_sign(":"));
                if let Some(body) = body
                    .and_then(|at| rest.get(at + 1..))
                    .filter(|body| !body.is_empty())
                {
                    self.read_statement(body, inner);
                }
                return Some(inner);
            }
            Some("import" | "from") => self.read_import(rest),
            Some("return" | "yield") => {
                let value = self.evaluate(rest, scope);
                let function = self.scopes[scope].function.clone();
                let returned = self.program.returned(self.file(), &function);
                let place = self.place(first.at);
                self.program.copy(value, returned, place);
            }
            Some("with" | "for") => self.read_loop(rest, scope),
            _ => self.read_assignment(tokens, scope, is_declared),
        }
        None
    }

    /// Returns the value of an expression: of all that stands in it.
    pub(super) fn evaluate(&mut self, tokens: &[Token], scope: usize) -> Node {
        let result = self.program.graph.fresh();
        if self.nested >= MOST_NESTED || self.program.graph.is_piece_full() {
            let place = self.place(tokens.first().map_or(0, |token| token.at));
            self.program.graph.cut_at(place);
            return result;
        }
        self.nested += 1;
        self.evaluate_parts(tokens, scope, result);
        self.nested -= 1;
        result
    }

    fn evaluate_parts(&mut self, tokens: &[Token], scope: usize, result: Node) {
        if self.code.language == Language::PowerShell && self.read_pipeline(tokens, scope, result) {
            return;
        }
        let mut at = 0;
        while at < tokens.len() {
            let place = self.place(tokens[at].at);
            let name = format!("#{}", tokens[at].at);
            if let Some(end) = self.read_function(&tokens[at..], &name, scope) {
                at += end;
                continue;
            }
            match &tokens[at].kind {
                // A method of a class, or the body behind a condition.
                Kind::Name(name) if is_method(&tokens[at..]) => {
                    let params = tokens[at + 1].group(b'(').unwrap_or_default();
                    let is_control = matches!(
                        name.as_str(),
                        "if" | "while" | "switch" | "catch" | "foreach" | "for" | "elseif"
                    );
                    if is_control {
                        self.read_taken(params, scope);
                        self.read_block(tokens[at + 2].group(b'{').unwrap_or_default(), scope);
                    } else {
                        let inner = self.open_function(name, params, scope);
                        self.read_block(tokens[at + 2].group(b'{').unwrap_or_default(), inner);
                    }
                    at += 3;
                }
                Kind::Name(name) if is_keyword(name) => at += 1,
                Kind::Name(_) | Kind::Text(..) | Kind::Group(..) => {
                    let (value, end) = self.evaluate_chain(tokens, at, scope);
                    self.program.copy(value, result, place);
                    at = end.max(at + 1);
                }
                _ => at += 1,
            }
        }
        self.find_joined(tokens, result, scope);
    }

    /// Evaluates a name, text or bracket with the members and calls behind it.
    fn evaluate_chain(&mut self, tokens: &[Token], begun: usize, scope: usize) -> (Node, usize) {
        let place = self.place(tokens[begun].at);
        let mut path = String::new();
        let mut value = match &tokens[begun].kind {
            Kind::Name(name) => {
                path.clone_from(name);
                self.variable(scope, name)
            }
            Kind::Text(text, code) => self.text_value(text, code, place, scope),
            Kind::Group(b'{', inner) => self.evaluate_object(inner, scope),
            Kind::Group(_, inner) => {
                // A type of PowerShell: `[scriptblock]::Create(…)`.
                if let [only] = inner.as_slice()
                    && self.code.language == Language::PowerShell
                {
                    path.push_str(only.name().unwrap_or_default());
                }
                let node = self.program.graph.fresh();
                for part in split_commas(inner) {
                    let value = self.evaluate(part, scope);
                    self.program.copy(value, node, place);
                }
                self.find_joined(inner, node, scope);
                node
            }
            _ => self.program.graph.fresh(),
        };
        let mut at = begun + 1;
        while let Some(token) = tokens.get(at) {
            let next = tokens.get(at + 1);
            match &token.kind {
                Kind::Sign("." | "?." | "::" | "->") => {
                    let Some(name) = next.and_then(Token::name) else {
                        at += 1;
                        continue;
                    };
                    if path.len() > LONGEST_PATH {
                        path.clear();
                    }
                    path = format!("{path}.{name}");
                    at += 2;
                    let is_call = tokens
                        .get(at)
                        .is_some_and(|token| token.group(b'(').is_some());
                    if !is_call {
                        let member = self.variable(scope, &path);
                        let part = self.program.graph.fresh();
                        self.program.graph.edge(value, part, Flow::Narrow, place);
                        self.program.copy(member, part, place);
                        value = part;
                        if !is_compared(tokens, begun) {
                            self.find_environment(&path, tokens.get(at), value, place);
                        }
                    } else if path == "os.environ.items" || path == "os.environ.copy" {
                        self.program.add_secret(value, ENVIRONMENT, true, place);
                    }
                }
                Kind::Group(b'(', inner) => {
                    value = self.call(&path, value, inner, (scope, place));
                    path.push_str("()");
                    at += 1;
                }
                Kind::Group(b'[', inner) => {
                    let part = self.program.graph.fresh();
                    self.program.graph.edge(value, part, Flow::Narrow, place);
                    self.evaluate(inner, scope);
                    value = part;
                    at += 1;
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

    /// Marks the whole environment, and not one variable of it, as a secret.
    fn find_environment(&mut self, path: &str, next: Option<&Token>, value: Node, place: Place) {
        let is_part = next.is_some_and(|next| {
            next.is_sign(".") || next.is_sign("?.") || next.group(b'[').is_some()
        });
        if matches!(path, "os.environ" | "process.env" | "Deno.env") && !is_part {
            self.program.add_secret(value, ENVIRONMENT, true, place);
        }
    }

    fn text_value(&mut self, text: &str, code: &[Token], place: Place, scope: usize) -> Node {
        let node = self.program.literal(text, place);
        if !code.is_empty() {
            let inner = self.evaluate(code, scope);
            self.program.copy(inner, node, place);
        }
        node
    }

    /// `{ name: value, … }`; a name of headers makes its value one.
    fn evaluate_object(&mut self, tokens: &[Token], scope: usize) -> Node {
        let node = self.program.graph.fresh();
        let has_statements = tokens.iter().any(|token| {
            token.is_sign(";")
                || matches!(
                    token.name(),
                    Some("return" | "const" | "let" | "var" | "await")
                )
        });
        if has_statements || self.code.language == Language::PowerShell {
            self.read_block(tokens, scope);
        }
        for part in split_commas(tokens) {
            let place = self.place(part[0].at);
            let colon = part
                .iter()
                .position(|token| token.is_sign(":") || token.is_sign("="));
            let key = match &part[0].kind {
                Kind::Name(name) | Kind::Text(name, _) if colon == Some(1) => Some(name.clone()),
                Kind::Name(name) if part.len() == 1 => Some(name.clone()),
                _ => None,
            };
            let value = match (&key, colon) {
                (Some(_), Some(at)) => &part[at + 1..],
                _ => part,
            };
            if has_statements && key.is_none() {
                continue;
            }
            let value = self.evaluate(value, scope);
            let flow = if key.is_some_and(|key| calls::is_header(&key)) {
                Flow::Header
            } else {
                Flow::Copy
            };
            self.program.graph.edge(value, node, flow, place);
        }
        node
    }

    /// Finds a file of secrets whose path is put together from the texts of an expression.
    fn find_joined(&mut self, tokens: &[Token], result: Node, scope: usize) {
        let mut texts: Vec<String> = Vec::new();
        let has_text = |token: &Token| matches!(token.kind, Kind::Text(..) | Kind::Sign("+"));
        if tokens.len() > LONGEST_COMMAND || !tokens.iter().any(has_text) {
            return;
        }
        for token in tokens {
            match &token.kind {
                Kind::Text(text, _) => texts.push(text.clone()),
                Kind::Name(name) => {
                    let variable = self.variable(scope, name);
                    texts.extend(self.constants.get(&variable).cloned());
                }
                _ => {}
            }
            if texts.len() > MOST_JOINED {
                return;
            }
        }
        let is_found = texts
            .iter()
            .any(|text| text.len() > 256 || find_store(text).is_some());
        if texts.len() < 2 || is_found {
            return;
        }
        for sign in ["/", ""] {
            if let Some(kind) = find_store(&texts.join(sign)) {
                let place = self.place(tokens[0].at);
                self.program.add_secret(result, kind, false, place);
                return;
            }
        }
    }
}

/// Whether a method begins here, or a word with a condition and a body.
fn is_method(tokens: &[Token]) -> bool {
    let has_params = tokens
        .get(1)
        .is_some_and(|token| token.group(b'(').is_some());
    has_params
        && tokens
            .get(2)
            .is_some_and(|token| token.group(b'{').is_some())
}

/// Whether a name is a word of the language and no value.
fn is_keyword(name: &str) -> bool {
    matches!(
        name,
        "await"
            | "new"
            | "return"
            | "not"
            | "and"
            | "or"
            | "in"
            | "is"
            | "if"
            | "else"
            | "elif"
            | "for"
            | "of"
            | "async"
            | "function"
            | "try"
            | "catch"
            | "finally"
            | "except"
            | "throw"
            | "raise"
            | "class"
            | "None"
            | "null"
            | "true"
            | "false"
            | "True"
            | "False"
            | "undefined"
            | "typeof"
            | "void"
            | "yield"
            | "with"
            | "as"
            | "while"
            | "do"
            | "param"
    )
}

/// Whether a value is only compared: `env is os.environ`.
fn is_compared(tokens: &[Token], at: usize) -> bool {
    at.checked_sub(1).and_then(|before| tokens[before].name()) == Some("is")
}

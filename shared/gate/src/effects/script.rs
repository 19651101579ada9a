//! Reads Python, JavaScript and PowerShell as far as values go: assignments, calls, returned values,
//! and functions with their parameters.

mod chain;
mod connections;
mod functions;
mod invoke;
mod names;
mod paths;
mod power;
mod process;
mod receivers;
mod statements;
mod types;

use super::calls;
use super::graph::{Flow, Node, Place};
use super::program::{Code, Language, Program};
use super::tokens::{Kind, Token, read_tokens};
use names::Names;
use process::Written;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use types::has_statements;

/// Largest number of expressions and statements inside one another.
const MOST_NESTED: u32 = 120;
/// Longest path of members (`a.b.c`), in bytes. Each beginning of a path is a variable.
const LONGEST_PATH: usize = 128;
/// Longest expression that is searched for a path that is put together in it.
const LONGEST_JOINED: usize = 64;

/// A function, or the file itself.
struct Scope {
    /// Its number in the skill.
    number: usize,
    parent: Option<usize>,
    function: String,
    /// The class, if it is the body of one. The names in it are those of the scope around.
    class: Option<String>,
    declared: HashSet<String>,
    /// Names that it takes from the scopes around (`global`).
    outer: HashSet<String>,
}

pub(super) struct Script<'a> {
    pub code: &'a Code,
    pub program: &'a mut Program,
    scopes: Vec<Scope>,
    /// Texts of variables that are assigned once as they stand.
    constants: HashMap<Node, String>,
    /// Texts that a variable may have as a part of a path.
    choices: HashMap<Node, Vec<String>>,
    /// What variables are assigned, as it is written, if it may be a command.
    written: HashMap<Node, Written>,
    names: Names,
    /// Functions whose calls look like members.
    properties: HashSet<String>,
    /// What is written to processes that the code starts.
    process_input: Node,
    /// Blocks of PowerShell with parameters, by the names that they got.
    blocks: Vec<String>,
    /// Number of tokens in `written`.
    written_tokens: usize,
    /// What the block of PowerShell around the current statement prints.
    block_value: Option<Node>,
    /// Number of expressions and statements around the current one.
    nested: u32,
}

/// Puts code into the graph.
pub(super) fn read_script(code: &Code, program: &mut Program) {
    let (tokens, is_cut) = read_tokens(&code.text, code.language);
    if is_cut {
        program.graph.cut_at(code.place);
    }
    let process_input = program.graph.fresh();
    let mut script = Script {
        code,
        program,
        scopes: vec![Scope {
            number: 0,
            parent: None,
            function: String::new(),
            class: None,
            declared: HashSet::new(),
            outer: HashSet::new(),
        }],
        constants: HashMap::new(),
        choices: HashMap::new(),
        written: HashMap::new(),
        written_tokens: 0,
        names: Names::default(),
        properties: HashSet::new(),
        process_input,
        blocks: Vec::new(),
        block_value: None,
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

/// Splits the items of a bracket. The commas behind the `for` of a comprehension part names.
fn split_items(tokens: &[Token], language: Language) -> impl Iterator<Item = &[Token]> {
    let is_loop = |token: &Token| language == Language::Python && token.name() == Some("for");
    let end = tokens.iter().position(is_loop).unwrap_or(tokens.len());
    let head = &tokens[..end];
    let last = head.iter().rposition(|token| token.is_sign(","));
    let from = if end < tokens.len() {
        last.map_or(0, |at| at + 1)
    } else {
        tokens.len()
    };
    let rest = Some(trim_lines(&tokens[from..])).filter(|rest| !rest.is_empty());
    split_commas(&tokens[..from]).chain(rest)
}

/// Splits `const a = 1, b = 2`.
fn split_declared(tokens: &[Token], is_declared: bool) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, token) in tokens.iter().enumerate() {
        let is_next = tokens.get(at + 2).is_some_and(|sign| sign.is_sign("="));
        if is_declared && is_next && token.is_sign(",") {
            parts.push(&tokens[from..at]);
            from = at + 1;
        }
    }
    parts.push(&tokens[from..]);
    parts
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

    /// The name as this language compares it.
    fn folded<'n>(&self, name: &'n str) -> Cow<'n, str> {
        if self.code.language == Language::PowerShell {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        }
    }

    /// The number of the scope whose variable of this name is seen from a scope.
    fn scope_of(&self, scope: usize, name: &str) -> usize {
        let mut at = scope;
        while !self.scopes[at].declared.contains(name) {
            match self.scopes[at].parent {
                Some(parent) => at = parent,
                None => break,
            }
        }
        self.scopes[at].number
    }

    /// The variable of this name that is seen from a scope.
    pub(super) fn variable(&mut self, scope: usize, name: &str) -> Node {
        let name = self.folded(name);
        let number = self.scope_of(scope, &name);
        self.program.variable(self.file(), number, &name)
    }

    fn declare(&mut self, scope: usize, name: &str) {
        let name = self.folded(name).into_owned();
        if !self.scopes[scope].outer.contains(&name) {
            self.scopes[scope].declared.insert(name);
        }
    }

    fn read_block(&mut self, tokens: &[Token], scope: usize) {
        // Bodies of Python: the indentation of the head, and the scope.
        let mut bodies: Vec<(usize, usize)> = Vec::new();
        let statements = split_statements(tokens);
        for (at, (_, statement)) in statements.iter().enumerate() {
            self.name_statement(statement, scope);
            let next = statements.get(at + 1).map_or(&[][..], |next| next.1);
            self.name_property(statement, next);
        }
        for (indent, statement) in statements {
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
        self.read_export(tokens, scope);
        tokens = self.without_attributes(tokens);
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
                return Some(self.read_definition(rest, scope));
            }
            Some("import" | "from")
                if rest.first().is_some_and(|next| next.group(b'(').is_none()) =>
            {
                self.read_import(tokens, scope);
            }
            Some("class") => return self.read_class(rest, scope),
            Some("global" | "nonlocal") if self.code.language == Language::Python => {
                let names = rest.iter().filter_map(Token::name).map(str::to_owned);
                self.scopes[scope].outer.extend(names);
            }
            Some(
                "if" | "elif" | "else" | "while" | "try" | "except" | "finally" | "case" | "match",
            ) if self.code.language == Language::Python
                && !(matches!(first.name(), Some("case" | "match"))
                    && matches!(
                        rest.first(),
                        Some(Token {
                            kind: Kind::Sign(_),
                            ..
                        })
                    )) =>
            {
                self.read_head(rest, scope);
            }
            Some("raise" | "throw") => {
                let value = self.evaluate(rest, scope);
                let raised = self.program.returned(self.file(), "raise");
                let place = self.place(first.at);
                self.program.copy(value, raised, place);
            }
            Some(word)
                if self.code.language == Language::PowerShell
                    && word.eq_ignore_ascii_case("param") =>
            {
                let params = rest.first().and_then(|token| token.group(b'('));
                self.declare_parameters(params.unwrap_or_default(), scope);
                self.read_statement(&rest[1.min(rest.len())..], scope);
            }
            Some("return" | "yield") => {
                let value = self.evaluate(rest, scope);
                let function = self.scopes[scope].function.clone();
                let returned = self.program.returned(self.file(), &function);
                let place = self.place(first.at);
                self.program.copy(value, returned, place);
                if let Some(block) = self.block_value {
                    self.program.copy(value, block, place);
                }
            }
            Some("with" | "for") => self.read_loop(rest, scope),
            _ => {
                for part in split_declared(tokens, is_declared) {
                    self.read_assignment(part, scope, is_declared);
                }
            }
        }
        None
    }

    /// Reads a function of Python, behind `def`; returns its scope.
    fn read_definition(&mut self, tokens: &[Token], scope: usize) -> usize {
        let name = tokens.first().and_then(Token::name).unwrap_or_default();
        let params = tokens.get(1).and_then(|token| token.group(b'('));
        let inner = self.open_function(name, params.unwrap_or_default(), scope);
        let colon = tokens.iter().position(|token| token.is_sign(":"));
        if let Some(body) = colon
            .and_then(|at| tokens.get(at + 1..))
            .filter(|body| !body.is_empty())
        {
            self.read_statement(body, inner);
        }
        inner
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
        if self.code.language == Language::Python {
            self.remember_comprehension(tokens, scope);
        }
        let mut at = 0;
        while at < tokens.len() {
            let place = self.place(tokens[at].at);
            let name = format!("#{}", tokens[at].at);
            if let Some(end) = self.read_function(&tokens[at..], &name, scope) {
                at += end;
                continue;
            }
            // A method of a class, or the body behind a condition.
            if let (Kind::Name(name), Some(method)) = (&tokens[at].kind, self.method_of(tokens, at))
            {
                at = self.read_method(name, &method, (tokens, at, scope));
                continue;
            }
            match &tokens[at].kind {
                Kind::Name(name) if name == "class" && self.code.language != Language::Python => {
                    let head = tokens[at..].iter().take(LONGEST_JOINED);
                    let body = head
                        .enumerate()
                        .find_map(|(at, token)| token.group(b'{').map(|_| at));
                    let end = body.map_or(at + 1, |body| at + body + 1);
                    self.read_class(&tokens[at + 1..end], scope);
                    at = end;
                }
                Kind::Name(name) if name == "for" && self.code.language == Language::Python => {
                    at = self.read_comprehension(tokens, at, (scope, result));
                }
                Kind::Name(name)
                    if is_keyword(name)
                        || name == "from" && self.code.language == Language::Python =>
                {
                    at += 1;
                }
                // `(chunk := f.read(512))`
                Kind::Name(_) if self.inner_assignment(tokens, at).is_some() => {
                    let sign = self.inner_assignment(tokens, at).unwrap_or(at);
                    let value = self.evaluate(&tokens[sign + 1..], scope);
                    self.assign(&tokens[at..sign], value, scope);
                    self.program.copy(value, result, place);
                    at = tokens.len();
                }
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

    fn text_value(&mut self, text: &str, code: &[Token], place: Place, scope: usize) -> Node {
        let node = self.program.literal(text, place);
        if !code.is_empty() {
            let inner = self.evaluate(code, scope);
            self.program.copy(inner, node, place);
        }
        node
    }

    /// A bracket `{…}`: statements, or `{ name: value, … }`. It is read as one of them, because both
    /// would double the work with each bracket inside another one.
    fn evaluate_braces(&mut self, tokens: &[Token], is_table: bool, scope: usize) -> Node {
        let node = self.program.graph.fresh();
        match self.code.language {
            Language::PowerShell if is_table => {
                for (_, part) in split_statements(tokens) {
                    self.evaluate_item(part, scope, node);
                }
            }
            Language::PowerShell => {
                let around = self.block_value.replace(node);
                self.read_block(tokens, scope);
                self.block_value = around;
            }
            Language::JavaScript if has_statements(tokens) => self.read_block(tokens, scope),
            language => {
                for part in split_items(tokens, language) {
                    self.evaluate_item(part, scope, node);
                }
            }
        }
        node
    }

    /// `name: value`; a name of headers makes its value one.
    fn evaluate_item(&mut self, part: &[Token], scope: usize, node: Node) {
        let Some(first) = part.first() else {
            return;
        };
        let place = self.place(first.at);
        let has_sign = part
            .get(1)
            .is_some_and(|sign| sign.is_sign(":") || sign.is_sign("="));
        let key = match &first.kind {
            Kind::Name(name) | Kind::Text(name, _) if has_sign => Some(name),
            Kind::Name(name) if part.len() == 1 => Some(name),
            _ => None,
        };
        let from = if key.is_some() && has_sign { 2 } else { 0 };
        let value = self.evaluate(&part[from..], scope);
        let flow = if key.is_some_and(|key| calls::is_header(key)) {
            Flow::Header
        } else {
            Flow::Copy
        };
        self.program.graph.edge(value, node, flow, place);
    }
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

#[cfg(test)]
mod tests;

//! Names that stand for others: imports under another name, functions in variables, and members
//! that a text chooses. Calls are known by their names, so each name is traced back to the module
//! that it comes from.

use super::super::calls::{self, Effect, effect_of};
use super::super::program::Language;
use super::super::tokens::{Kind, Token};
use super::{LONGEST_PATH, Script, split_commas, trim_lines};
use std::collections::HashMap;

/// Largest number of modules whose names are all imported.
const MOST_STARS: usize = 8;

/// The paths that names stand for.
#[derive(Default)]
pub(super) struct Names {
    /// For the number of a scope and a name, the path: `subprocess.run`.
    paths: HashMap<(usize, String), String>,
    /// Modules all of whose names are imported.
    stars: Vec<String>,
}

impl Script<'_> {
    /// Whether calls of this path are known to do something.
    fn is_known(&self, path: &str) -> bool {
        let path = path.to_ascii_lowercase();
        effect_of(&path, self.code.language == Language::Python) != Effect::Passes
            || calls::is_network(&path)
            || calls::is_module(&path)
    }

    /// Makes a name stand for a path. Nothing is known of the order in which code runs, so a path
    /// that does nothing replaces none.
    pub(super) fn set_path(&mut self, scope: usize, name: &str, path: String) {
        if name == path || name.is_empty() || path.is_empty() || path.len() > LONGEST_PATH {
            return;
        }
        let key = (self.scope_of(scope, name), name.to_owned());
        let old = self.names.paths.get(&key);
        if old.is_none_or(|old| !self.is_known(old)) {
            self.names.paths.insert(key, path);
        }
    }

    /// Returns the path that a name, or a name with members, stands for.
    pub(super) fn path_of(&self, scope: usize, name: &str) -> Option<String> {
        if self.names.paths.is_empty() && self.names.stars.is_empty() {
            return None;
        }
        let key = (self.scope_of(scope, name), name.to_owned());
        if let Some(path) = self.names.paths.get(&key) {
            return Some(path.clone());
        }
        let is_python = self.code.language == Language::Python;
        let effect = |path: &str| effect_of(&path.to_ascii_lowercase(), is_python);
        let mut paths = self.names.stars.iter().map(|star| format!("{star}.{name}"));
        paths.find(|path| {
            let is_more = calls::is_network(path) || effect(path) != effect(name);
            is_more && effect(path) != Effect::Passes || calls::is_module(path)
        })
    }

    /// Returns the path of the function or module that an expression stands for: `a.b`, `a['b']`,
    /// `require('a').b`, `getattr(a, 'b')`, `partial(a.b, c)`.
    pub(super) fn path_of_expression(&self, tokens: &[Token], scope: usize) -> Option<String> {
        let mut tokens = trim_lines(tokens);
        while let Some((_, rest)) = tokens
            .split_first()
            .filter(|(first, _)| matches!(first.name(), Some("await" | "new")))
        {
            tokens = rest;
        }
        let (first, rest) = tokens.split_first()?;
        let mut path = match &first.kind {
            Kind::Name(name) if super::is_keyword(name) => return None,
            Kind::Name(name) => self.path_of(scope, name).unwrap_or_else(|| name.clone()),
            Kind::Group(b'(', inner) => self.path_of_expression(inner, scope)?,
            _ => return None,
        };
        let mut at = 0;
        while let Some(token) = rest.get(at) {
            match &token.kind {
                Kind::Sign("." | "?." | "::") => {
                    let name = rest.get(at + 1).and_then(Token::name)?;
                    add_member(&mut path, name);
                    at += 1;
                }
                Kind::Group(b'[', inner) => add_member(&mut path, only_text(inner)?),
                Kind::Group(b'(', inner) => path = self.path_of_call(&path, inner, scope)?,
                // `a or b`, `a if c else b`: the first is enough.
                Kind::Name(name) if matches!(name.as_str(), "or" | "if") => break,
                Kind::Sign("||" | "?" | "??") => break,
                _ => return None,
            }
            if path.len() > LONGEST_PATH {
                return None;
            }
            at += 1;
        }
        Some(path)
    }

    /// Returns the path of the function or module that a call of this path returns.
    pub(super) fn path_of_call(&self, path: &str, inner: &[Token], scope: usize) -> Option<String> {
        let last = path.rsplit('.').next().unwrap_or(path);
        let first = || split_commas(inner).next();
        match last {
            "require" | "import" | "__import__" | "import_module" | "createRequire" => {
                only_text(first()?).map(module_path)
            }
            "getattr" | "attrgetter" => {
                let mut path = self.path_of_expression(first()?, scope)?;
                let name = split_commas(inner).nth(1)?;
                add_member(&mut path, only_text(name)?);
                Some(path)
            }
            "partial" | "promisify" | "partialmethod" | "wraps" | "unwrap" | "staticmethod" => {
                self.path_of_expression(first()?, scope)
            }
            // `fetch.bind(window)`
            "bind" => Some(path.strip_suffix(".bind")?.to_owned()),
            _ => None,
        }
    }

    /// Reads which names an import brings, behind its first word.
    pub(super) fn name_imports(&mut self, tokens: &[Token], is_from: bool, scope: usize) {
        if self.code.language == Language::Python {
            self.name_python_imports(tokens, is_from, scope);
            return;
        }
        let module = tokens.iter().rev().find_map(|token| match &token.kind {
            Kind::Text(text, _) => Some(text.as_str()),
            _ => None,
        });
        // `import a = require('b')`
        let Some(module) = module else {
            self.name_assignment(tokens, scope);
            return;
        };
        let path = module_path(module);
        let base = path.strip_suffix(".default").unwrap_or(&path).to_owned();
        for part in split_commas(tokens) {
            match &part[0].kind {
                Kind::Group(b'{', inner) => self.name_members(inner, &base, scope),
                // `* as a`
                Kind::Sign(_) => {
                    let name = part.get(2).and_then(Token::name).unwrap_or_default();
                    self.set_path(scope, name, base.clone());
                }
                Kind::Name(name) => self.set_path(scope, name, path.clone()),
                _ => {}
            }
        }
    }

    fn name_python_imports(&mut self, tokens: &[Token], is_from: bool, scope: usize) {
        let middle = tokens
            .iter()
            .position(|token| token.name() == Some("import"));
        let (base, items) = match middle.filter(|_| is_from) {
            Some(at) => (self.own_module(&tokens[..at]), &tokens[at + 1..]),
            None => (String::new(), tokens),
        };
        let items = match items {
            [only] => only.group(b'(').unwrap_or(items),
            _ => items,
        };
        for item in split_commas(items) {
            let at = item.iter().position(|token| token.name() == Some("as"));
            let path = dotted(&item[..at.unwrap_or(item.len())]);
            let name = at.and_then(|at| item.get(at + 1)).and_then(Token::name);
            if !is_from {
                // Without another name, the name is the path.
                let name = name.unwrap_or(&path).to_owned();
                let path = self.own_module(&item[..at.unwrap_or(item.len())]);
                self.set_path(scope, &name, path);
            } else if path.is_empty() {
                if self.names.stars.len() < MOST_STARS {
                    self.names.stars.push(base.clone());
                }
            } else {
                let name = name.unwrap_or(&path).to_owned();
                self.set_path(scope, &name, format!("{base}.{path}"));
            }
        }
    }

    /// The path of a module of Python; one of the skill itself begins with `./`.
    fn own_module(&mut self, tokens: &[Token]) -> String {
        let path = dotted(tokens);
        let is_own = self.program.own_file(&path.replace('.', "/")).is_some();
        let is_named = path.bytes().any(|byte| byte.is_ascii_alphanumeric());
        if is_own && is_named {
            format!("./{}", path.rsplit('.').next().unwrap_or(&path))
        } else {
            path
        }
    }

    /// `{ a, b: c, d as e }` of a module.
    fn name_members(&mut self, tokens: &[Token], base: &str, scope: usize) {
        for part in split_commas(tokens) {
            let Some(member) = part[0].name() else {
                continue;
            };
            let other = part
                .get(1)
                .filter(|sign| sign.is_sign(":") || sign.name() == Some("as"));
            let name = other
                .and_then(|_| part.get(2))
                .and_then(Token::name)
                .unwrap_or(member);
            self.set_path(scope, name, format!("{base}.{member}"));
        }
    }

    /// Reads which names an assignment gives to functions and modules.
    pub(super) fn name_assignment(&mut self, tokens: &[Token], scope: usize) {
        let Some(at) = tokens.iter().position(|token| token.is_sign("=")) else {
            return;
        };
        let (target, value) = (&tokens[..at], trim_lines(&tokens[at + 1..]));
        let declares = |token: &Token| matches!(token.name(), Some("const" | "let" | "var"));
        let from = target.iter().rposition(declares).map_or(0, |at| at + 1);
        let target = &target[from..];
        // A type stands behind a colon.
        let colon = target.iter().position(|token| token.is_sign(":"));
        let target = &target[..colon.unwrap_or(target.len())];
        // `ops = {'send': requests.post}`
        if let (
            [
                Token {
                    kind: Kind::Name(name),
                    ..
                },
            ],
            [
                Token {
                    kind: Kind::Group(b'{', inner),
                    ..
                },
            ],
        ) = (target, value)
        {
            for part in split_commas(inner) {
                let key = match part {
                    [
                        Token {
                            kind: Kind::Name(key) | Kind::Text(key, _),
                            ..
                        },
                        colon,
                        ..,
                    ] if colon.is_sign(":") || colon.is_sign("=") => key,
                    _ => continue,
                };
                if let Some(path) = self.path_of_expression(&part[2..], scope) {
                    self.set_path(scope, &format!("{name}.{key}"), path);
                }
            }
            return;
        }
        let Some(path) = self.path_of_expression(value, scope) else {
            return;
        };
        // A member of anything else would hide what the name itself says.
        let is_known = self.is_known(&path);
        match target {
            [
                Token {
                    kind: Kind::Group(b'{', inner),
                    ..
                },
            ] => {
                let base = path.strip_suffix(".default").unwrap_or(&path).to_owned();
                self.name_members(inner, &base, scope);
            }
            [
                Token {
                    kind: Kind::Name(name),
                    ..
                },
            ] if is_known || !path.contains('.') || path.starts_with('.') => {
                self.set_path(scope, name, path);
            }
            // `self.send = requests.post`
            _ if is_known => {
                let name = dotted(target);
                self.set_path(scope, &name, path);
            }
            _ => {}
        }
    }
}

/// The text that stands here alone.
pub(super) fn only_text(tokens: &[Token]) -> Option<&str> {
    match trim_lines(tokens) {
        [
            Token {
                kind: Kind::Text(text, code),
                ..
            },
        ] if code.is_empty() && !text.is_empty() => Some(text),
        _ => None,
    }
}

/// Adds a member to a path. Members of the object that has all names are names themselves.
pub(super) fn add_member(path: &mut String, name: &str) {
    if matches!(
        path.as_str(),
        "globalThis" | "window" | "global" | "builtins" | "__builtins__"
    ) {
        path.clear();
    } else {
        path.push('.');
    }
    path.push_str(name);
}

/// Joins names with points between them.
fn dotted(tokens: &[Token]) -> String {
    let parts = tokens.iter().map(|token| match &token.kind {
        Kind::Name(name) => name.as_str(),
        Kind::Sign("." | "->") => ".",
        Kind::Sign("...") => "...",
        _ => "",
    });
    parts.collect()
}

/// The path of a module, by the text that names it. What a module of the skill exports without a
/// name is its `default`.
fn module_path(text: &str) -> String {
    let text = text.strip_prefix("node:").unwrap_or(text);
    if text.starts_with(['.', '/']) {
        let name = text.rsplit('/').next().unwrap_or(text);
        let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
        return format!("./{stem}.default");
    }
    match text {
        "node-fetch" | "cross-fetch" | "isomorphic-fetch" | "make-fetch-happen" => {
            "fetch".to_owned()
        }
        _ => text.replace('/', "."),
    }
}

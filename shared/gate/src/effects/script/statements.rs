//! Statements: imports, loops and assignments.

use super::super::calls;
use super::super::graph::{Flow, Node};
use super::super::program::Language;
use super::super::tokens::{Kind, Token};
use super::{LONGEST_JOINED, Script, split_commas, split_declared};

/// Longest text of a variable to which others are added.
const LONGEST_CONSTANT: usize = 4_096;

impl Script<'_> {
    /// Reads which names a statement brings, before any statement is read: functions use names that
    /// stand below them.
    pub(super) fn name_statement(&mut self, tokens: &[Token], scope: usize) {
        let Some((first, rest)) = tokens.split_first() else {
            return;
        };
        match first.name() {
            Some("import") => self.name_imports(rest, false, scope),
            Some("from") => self.name_imports(rest, true, scope),
            _ => {
                for part in split_declared(tokens, self.code.language != Language::Python) {
                    self.name_assignment(part, scope);
                }
            }
        }
    }

    /// Remembers a function whose calls look like members: `@property`, `get name() {…}`.
    pub(super) fn name_property(&mut self, tokens: &[Token], next: &[Token]) {
        let name = match tokens {
            [at, rest @ ..] if at.is_sign("@") => {
                let words = rest.iter().filter_map(Token::name);
                let mut words = words.filter(|word| word.ends_with("property"));
                let mut head = next.iter().filter_map(Token::name);
                words
                    .next()
                    .and_then(|_| head.find(|name| !matches!(*name, "async" | "def")))
            }
            [get, name, params, ..]
                if get.name() == Some("get") && params.group(b'(').is_some() =>
            {
                name.name()
            }
            _ => None,
        };
        self.properties.extend(name.map(str::to_owned));
    }

    /// The head of a compound statement of Python, and what stands behind its colon on the line.
    pub(super) fn read_head(&mut self, tokens: &[Token], scope: usize) {
        let colon = tokens.iter().position(|token| token.is_sign(":"));
        let colon = colon.unwrap_or(tokens.len());
        let head = &tokens[..colon];
        self.evaluate(head, scope);
        if let Some(at) = head.iter().position(|token| token.name() == Some("as")) {
            self.read_caught("catch", &head[at + 1..], scope);
        }
        if let Some(rest) = tokens.get(colon + 1..).filter(|rest| !rest.is_empty()) {
            self.read_statement(rest, scope);
        }
    }

    /// What is caught has what is raised anywhere in the file.
    pub(super) fn read_caught(&mut self, word: &str, names: &[Token], scope: usize) {
        if word == "catch" && !names.is_empty() {
            let raised = self.program.returned(self.file(), "raise");
            self.assign(names, raised, scope);
        }
    }

    pub(super) fn read_import(&mut self, tokens: &[Token], scope: usize) {
        self.name_statement(tokens, scope);
        let mut path = String::new();
        for (at, token) in tokens.iter().enumerate().skip(1) {
            match &token.kind {
                Kind::Name(name) => {
                    // `import package.module`
                    if tokens[at - 1].is_sign(".") && !path.is_empty() {
                        path = format!("{path}/{name}");
                    } else {
                        path.clone_from(name);
                    }
                    self.import(&path);
                }
                Kind::Text(name, _) => self.import(name),
                Kind::Group(_, inner) => {
                    for name in inner.iter().filter_map(Token::name) {
                        self.import(name);
                    }
                }
                _ => {}
            }
        }
    }

    /// What a file exports without a name, or under another one, is called by that.
    pub(super) fn read_export(&mut self, tokens: &[Token], scope: usize) {
        let [first, second, rest @ ..] = tokens else {
            return;
        };
        let place = self.place(first.at);
        let is_exports = second.is_sign(".")
            && rest.first().and_then(Token::name) == Some("exports")
            || first.name() == Some("exports") && second.is_sign("=");
        if first.name() == Some("export") {
            if second.name() == Some("default") {
                let name = exported_name(rest);
                self.link_functions("default", &name, place);
            }
            // `export { a as b }`
            for part in split_commas(second.group(b'{').unwrap_or_default()) {
                if let Some((own, other)) = pair_of(part) {
                    self.link_functions(other, own, place);
                }
            }
        } else if is_exports && let Some(at) = tokens.iter().position(|token| token.is_sign("=")) {
            let value = &tokens[at + 1..];
            if let Some(path) = self.path_of_expression(value, scope) {
                let name = path.rsplit('.').next().unwrap_or(&path);
                self.link_functions("default", name, place);
            }
            // `module.exports = { a: b }`
            let object = value.first().and_then(|token| token.group(b'{'));
            for part in split_commas(object.unwrap_or_default()) {
                if let Some((other, own)) = pair_of(part) {
                    self.link_functions(other, own, place);
                }
            }
        }
    }

    fn import(&mut self, path: &str) {
        if let Some(other) = self.program.own_file(path) {
            let file = self.file();
            self.program.imports.push((file, other));
        }
    }

    /// Reads the `for target in value` of a comprehension; returns where it ends.
    pub(super) fn read_comprehension(
        &mut self,
        tokens: &[Token],
        at: usize,
        (scope, result): (usize, Node),
    ) -> usize {
        let rest = &tokens[at + 1..];
        let mut head = rest.iter().take(LONGEST_JOINED);
        let Some(middle) = head.position(|token| token.name() == Some("in")) else {
            return at + 1;
        };
        let value = &rest[middle + 1..];
        let ends = |token: &Token| matches!(token.name(), Some("for" | "if" | "async"));
        let length = value.iter().position(ends).unwrap_or(value.len());
        let place = self.place(tokens[at].at);
        let value = self.evaluate(&value[..length], scope);
        self.assign(&rest[..middle], value, scope);
        self.program.copy(value, result, place);
        at + 1 + middle + 1 + length
    }

    /// `with a as b:`, `for a in b:`, `for (const a of b) {…}`.
    pub(super) fn read_loop(&mut self, tokens: &[Token], scope: usize) {
        // `for await (const a of b)`
        let is_async = tokens.first().and_then(Token::name) == Some("await");
        let tokens = &tokens[usize::from(is_async)..];
        let head = tokens.first().and_then(|token| token.group(b'('));
        if let Some(head) = head {
            self.read_taken(head, scope);
            let value = self.evaluate(&tokens[1..], scope);
            self.print_value(value, tokens, scope);
            return;
        }
        let end = tokens
            .iter()
            .position(|token| token.is_sign(":"))
            .unwrap_or(tokens.len());
        if tokens[..end].iter().any(|token| token.name() == Some("in")) {
            // `for a, b in c`: the commas part names, not values.
            self.read_taken(&tokens[..end], scope);
        } else {
            for part in split_commas(&tokens[..end]) {
                self.read_taken(part, scope);
            }
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
        if !is_as {
            self.remember_choices(target, value, scope);
        }
        let value = self.evaluate(value, scope);
        self.assign(target, value, scope);
    }

    pub(super) fn read_assignment(&mut self, tokens: &[Token], scope: usize, is_declared: bool) {
        let is_assignment =
            |token: &Token| matches!(token.kind, Kind::Sign("=" | ":=" | "+=" | "|="));
        let Some(at) = tokens.iter().position(is_assignment) else {
            let value = self.evaluate(tokens, scope);
            self.print_value(value, tokens, scope);
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
        let is_python = self.code.language == Language::Python;
        let is_local = is_declared || is_python && scope > 0 && self.scopes[scope].class.is_none();
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
            self.name_assignment(tokens, scope);
            let variable = self.variable(scope, name);
            // `a = a + b`
            let (part, is_added) = match value {
                [first, plus, rest @ ..] if first.name() == Some(name) && plus.is_sign("+") => {
                    (rest, true)
                }
                _ => (value, tokens[at].is_sign("+=")),
            };
            self.set_constant(variable, part, is_added);
            self.remember_path(variable, part, scope);
            self.write_down(variable, part, is_added);
        }
        // `a = b = c`
        let mut targets = vec![target];
        let mut value = value;
        while let Some(next) = value.iter().position(|token| token.is_sign("=")) {
            let mut names = value[..next].iter();
            let is_name = |token: &Token| matches!(token.kind, Kind::Name(_) | Kind::Sign("."));
            if next == 0 || !names.all(is_name) {
                break;
            }
            targets.push(&value[..next]);
            value = &value[next + 1..];
        }
        let value = self.evaluate_statement(value, scope);
        for target in targets {
            self.assign(target, value, scope);
        }
        if self.scopes[scope].class.is_some()
            && let Some(name) = name
        {
            self.assign_attribute(name, value, scope);
        }
    }

    /// A function of PowerShell returns each value that no variable takes.
    fn print_value(&mut self, value: Node, tokens: &[Token], scope: usize) {
        if self.code.language != Language::PowerShell {
            return;
        }
        let function = self.scopes[scope].function.clone();
        let printed = if function.is_empty() {
            self.code.output
        } else {
            self.program.returned(self.file(), &function)
        };
        let place = self.place(tokens.first().map_or(0, |token| token.at));
        self.program.copy(value, printed, place);
        if let Some(block) = self.block_value {
            self.program.copy(value, block, place);
        }
    }

    /// Evaluates what a variable is assigned, which may be a statement in PowerShell: `if (…) {…}`.
    fn evaluate_statement(&mut self, tokens: &[Token], scope: usize) -> Node {
        let word = tokens.first().and_then(Token::name).unwrap_or_default();
        let is_statement = self.code.language == Language::PowerShell
            && matches!(
                word.to_ascii_lowercase().as_str(),
                "if" | "switch" | "foreach" | "for" | "while" | "try" | "do"
            );
        if !is_statement {
            return self.evaluate(tokens, scope);
        }
        let name = format!("#{}", tokens[0].at);
        let inner = self.open_function(&name, &[], scope);
        let value = self.evaluate(tokens, inner);
        let returned = self.program.returned(self.file(), &name);
        let place = self.place(tokens[0].at);
        self.program.copy(returned, value, place);
        value
    }

    /// Remembers the text of a variable, and what is added to it.
    fn set_constant(&mut self, variable: Node, value: &[Token], is_added: bool) {
        let text = match value {
            [
                Token {
                    kind: Kind::Text(text, code),
                    ..
                },
            ] if code.is_empty() => text,
            _ => {
                if is_added {
                    self.constants.remove(&variable);
                }
                return;
            }
        };
        let old = self.constants.get_mut(&variable).filter(|_| is_added);
        match old {
            Some(old) if old.len() < LONGEST_CONSTANT => *old += text,
            _ => {
                self.constants.insert(variable, text.clone());
            }
        }
    }

    /// `self.a` and `Class.a` are what the body of a class assigns to `a`.
    fn assign_attribute(&mut self, name: &str, value: Node, scope: usize) {
        let class = self.scopes[scope].class.clone().unwrap_or_default();
        let place = self.place(0);
        for object in ["self", "this", class.as_str()] {
            let attribute = self.variable(scope, &format!("{object}.{name}"));
            self.program.copy(value, attribute, place);
        }
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
                    // `module.name = value` of another file of the skill.
                    let base = path.split('.').next().unwrap_or_default();
                    let known = is_member.then(|| self.path_of(scope, base)).flatten();
                    let is_exported = is_member && matches!(base, "exports" | "module");
                    if is_exported || known.is_some_and(|known| known.starts_with("./")) {
                        let variable = self.variable(scope, name);
                        self.program.graph.edge(value, variable, flow, place);
                    }
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

/// The two names of `a as b` or `a: b`.
fn pair_of(part: &[Token]) -> Option<(&str, &str)> {
    match part {
        [first, _, second] => Some((first.name()?, second.name()?)),
        _ => None,
    }
}

/// The name of a function that is exported without one: its own, or the place where it stands.
fn exported_name(tokens: &[Token]) -> String {
    let is_async = tokens.first().and_then(Token::name) == Some("async");
    let tokens = &tokens[usize::from(is_async)..];
    let named = match tokens.first().and_then(Token::name) {
        Some("function" | "class") => tokens.get(1).and_then(Token::name),
        _ if tokens.get(1).is_some_and(|next| next.is_sign("=>")) => None,
        name => name,
    };
    let place = tokens.first().map_or(0, |first| first.at);
    named.map_or_else(|| format!("#{place}"), str::to_owned)
}

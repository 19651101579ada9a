//! Calls: what a function does with its arguments, of the language or of the skill itself.

use super::super::calls::{self, Effect, effect_of};
use super::super::graph::{Flow, Node, Place};
use super::super::program::{Call, Code, Language, MARK, PLACE};
use super::super::tokens::{Kind, Token, embedded_code};
use super::{LONGEST_COMMAND, Script, split_commas};

/// An argument of a call.
struct Argument<'t> {
    name: Option<&'t str>,
    tokens: &'t [Token],
    node: Node,
}

/// The values of a call.
struct Values {
    /// What stands before the point.
    receiver: Node,
    /// The arguments, and all of them together.
    nodes: Vec<Node>,
    all: Node,
    /// What has the address.
    target: Node,
    /// What the call returns.
    result: Node,
    place: Place,
}

impl Script<'_> {
    /// Puts a call into the graph and returns its value. `receiver` is the value before the point.
    pub(super) fn call(
        &mut self,
        path: &str,
        receiver: Node,
        inner: &[Token],
        (scope, place): (usize, Place),
    ) -> Node {
        let lower = path.to_ascii_lowercase();
        let effect = effect_of(&lower, self.code.language == Language::Python);
        let result = self.program.graph.fresh();
        if effect == Effect::Starts
            || effect == Effect::Runs
                && self.code.language == Language::JavaScript
                && lower.starts_with("exec")
        {
            self.start_process(inner, result, (scope, place));
            return result;
        }
        let arguments = self.arguments(inner, result, scope);
        self.find_joined(inner, result, scope);
        if calls::connects(&lower) {
            self.program.connections.push(result);
        }
        let all = self.program.graph.fresh();
        for argument in &arguments {
            self.program.copy(argument.node, all, place);
        }
        let target = self.program.graph.fresh();
        // Where it goes is the first argument, or what stands before the point.
        let address = arguments
            .iter()
            .find(|one| one.name.is_none_or(|name| name == "url"));
        self.program
            .copy(address.map_or(all, |one| one.node), target, place);
        self.program.copy(receiver, target, place);
        // `file_get_contents('https://…')`
        let first = inner.first().map(|token| &token.kind);
        let is_address = matches!(first, Some(Kind::Text(text, _)) if text.starts_with("http"));
        if calls::fetches(&lower) || effect == Effect::Reads && is_address {
            let fetched = self.program.fetched(target, place);
            self.program.copy(fetched, result, place);
        }
        let values = Values {
            receiver,
            nodes: arguments.iter().map(|argument| argument.node).collect(),
            all,
            target,
            result,
            place,
        };
        self.apply(effect, &lower, &values);
        self.hand_over(path, &arguments, result, place);
        if matches!(effect, Effect::Reads) && is_written(inner) {
            // A handle to write by is the name of the file.
            self.program.copy(all, result, place);
        }
        result
    }

    /// Applies what a function of the language does.
    fn apply(&mut self, effect: Effect, path: &str, values: &Values) {
        let Values {
            receiver,
            all,
            target,
            result,
            place,
            ref nodes,
        } = *values;
        let graph = &mut self.program.graph;
        let first = nodes.first().copied().unwrap_or(all);
        let second = nodes.get(1).copied().unwrap_or(all);
        match effect {
            Effect::Reads => {
                graph.edge(all, result, Flow::Read, place);
                graph.edge(receiver, result, Flow::Read, place);
            }
            Effect::WritesSecond => graph.edge(second, first, Flow::Write, place),
            Effect::WritesFirst => graph.edge(first, second, Flow::Write, place),
            Effect::WritesThere => graph.edge(all, receiver, Flow::Write, place),
            Effect::CopiesFile => {
                let content = graph.fresh();
                graph.edge(first, content, Flow::Read, place);
                graph.edge(content, second, Flow::Write, place);
            }
            Effect::Sends => {
                self.program.add_call(all, Call::Sends, target, place);
            }
            Effect::SendsFile => {
                self.program.add_call(all, Call::SendsFile, target, place);
            }
            Effect::SendsThere => {
                let number = self.program.add_call(all, Call::Sends, target, place);
                if !calls::is_network(path) {
                    // Mappings have a `get`, too.
                    let last = path.rsplit('.').next();
                    let is_reading = matches!(last, Some("get" | "lookup"));
                    let is_client = ["session", "client", "http", "api"]
                        .iter()
                        .any(|name| path.contains(name));
                    let receiver = if is_reading && !is_client {
                        result
                    } else {
                        receiver
                    };
                    self.program.if_connected.push((receiver, number));
                }
                let graph = &mut self.program.graph;
                if path.ends_with("write") || path.ends_with("end") {
                    graph.edge(all, receiver, Flow::Write, place);
                }
                // `mapping.get(name)`: a part of the value, or what is given for it.
                graph.edge(receiver, result, Flow::Narrow, place);
                graph.edge(all, result, Flow::Narrow, place);
            }
            // The caller has put what is fetched into the result.
            Effect::Downloads => graph.edge(result, second, Flow::Write, place),
            Effect::RunsFile => {
                self.program.add_call(all, Call::RunsFile, target, place);
            }
            Effect::Runs => {
                self.program.add_call(all, Call::Runs, target, place);
                self.program.copy(all, result, place);
            }
            Effect::Prints => {
                let file = self.file();
                let printed = self.program.returned(file, "");
                self.program.copy(all, printed, place);
            }
            Effect::Drops => {}
            Effect::Narrows => {
                graph.edge(receiver, result, Flow::Narrow, place);
                graph.edge(all, result, Flow::Narrow, place);
            }
            Effect::Imports | Effect::Passes | Effect::Starts => {
                graph.edge(receiver, result, Flow::Copy, place);
                graph.edge(all, result, Flow::Copy, place);
            }
        }
    }

    /// Evaluates arguments. A function among them gets what the call returns, and returns into it.
    fn arguments<'t>(
        &mut self,
        inner: &'t [Token],
        result: Node,
        scope: usize,
    ) -> Vec<Argument<'t>> {
        let mut arguments = Vec::new();
        for part in split_commas(inner) {
            let place = self.place(part[0].at);
            let name = part[0]
                .name()
                .filter(|_| part.get(1).is_some_and(|sign| sign.is_sign("=")));
            let tokens = if name.is_some() { &part[2..] } else { part };
            let unnamed = format!("#{}", part[0].at);
            if self.read_function(tokens, &unnamed, scope).is_some() {
                let file = self.file();
                for number in 1..=3 {
                    let argument = self.program.argument(file, &unnamed, number);
                    self.program.copy(result, argument, place);
                }
                let returned = self.program.returned(file, &unnamed);
                self.program.copy(returned, result, place);
                continue;
            }
            let value = self.evaluate(tokens, scope);
            let node = self.program.graph.fresh();
            let is_header = name.is_some_and(calls::is_header);
            let flow = if is_header { Flow::Header } else { Flow::Copy };
            // The key by which a client signs in is used and not sent.
            if !name
                .is_some_and(|name| matches!(name, "env" | "key_filename" | "pkey" | "private_key"))
            {
                self.program.graph.edge(value, node, flow, place);
            }
            arguments.push(Argument { name, tokens, node });
            if let [
                Token {
                    kind: Kind::Text(text, _),
                    ..
                },
            ] = tokens
                && let Some(other) = self.program.own_file(text)
            {
                let file = self.file();
                self.program.imports.push((file, other));
            }
        }
        arguments
    }

    /// Joins arguments with the parameters of a function of this name, and its value with the call.
    fn hand_over(&mut self, path: &str, arguments: &[Argument<'_>], result: Node, place: Place) {
        let name = path.rsplit('.').next().unwrap_or(path);
        if name.is_empty() || name.ends_with(')') {
            return;
        }
        let file = self.file();
        let returned = self.program.returned(file, name);
        self.program.copy(returned, result, place);
        for (number, argument) in (1..).zip(arguments) {
            let to = match argument.name {
                Some(param) => self.program.named_argument(file, name, param),
                None => self.program.argument(file, name, number),
            };
            self.program.copy(argument.node, to, place);
            // A function that is passed by its name gets what the call returns.
            if let [
                Token {
                    kind: Kind::Name(given),
                    ..
                },
            ] = argument.tokens
                && argument.name.is_none()
            {
                let to = self.program.argument(file, given, 1);
                self.program.copy(result, to, place);
                let is_python = self.code.language == Language::Python;
                if effect_of(&given.to_ascii_lowercase(), is_python) == Effect::Runs {
                    self.program.add_call(result, Call::Runs, result, place);
                }
            }
        }
    }

    /// Hands the command that a process is started with to the reader of shells.
    fn start_process(&mut self, inner: &[Token], result: Node, (scope, place): (usize, Place)) {
        let mut text = String::new();
        let input = self.program.graph.fresh();
        let parts: Vec<&[Token]> = split_commas(inner).collect();
        // A list is a command with words; a text by itself is a line of a shell.
        let is_line = !parts
            .iter()
            .take(2)
            .any(|part| self.list_of(part, scope).is_some());
        for (number, part) in parts.iter().take(3).enumerate() {
            let is_named = part.get(1).is_some_and(|sign| sign.is_sign("="));
            if is_named {
                if part[0].name() == Some("input") {
                    let value = self.evaluate(&part[2..], scope);
                    self.program.copy(value, input, place);
                }
                continue;
            }
            if let Some(words) = self.list_of(part, scope) {
                for word in split_commas(&words).take(LONGEST_COMMAND) {
                    text.push(' ');
                    self.push_word(&mut text, word, (scope, true));
                }
            } else if number == 0 || !matches!(part[0].kind, Kind::Group(b'{', _)) && !is_line {
                text.push(' ');
                self.push_word(&mut text, part, (scope, !is_line));
            }
        }
        self.read_command_line(text, [input, result], place);
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

    /// The tokens in a list that stands here, or in a variable.
    fn list_of(&mut self, tokens: &[Token], scope: usize) -> Option<Vec<Token>> {
        match tokens {
            [
                Token {
                    kind: Kind::Group(b'[', inner),
                    ..
                },
            ] if inner.len() < LONGEST_COMMAND => Some(inner.clone()),
            [
                Token {
                    kind: Kind::Name(name),
                    ..
                },
            ] => {
                let variable = self.variable(scope, name);
                let list = self.lists.get(&variable)?;
                match list.as_slice() {
                    [
                        Token {
                            kind: Kind::Group(_, inner),
                            ..
                        },
                    ] => Some(inner.clone()),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Writes an expression as a word, or as a part of a command line; a value that is not written
    /// there stands in it by its number.
    fn push_word(
        &mut self,
        text: &mut String,
        tokens: &[Token],
        (scope, is_quoted): (usize, bool),
    ) {
        let quote = |value: &str| {
            if is_quoted {
                let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
                format!("\"{}\"", escaped.replace('$', "\\$").replace('`', "\\`"))
            } else {
                value.to_owned()
            }
        };
        if let [
            Token {
                kind: Kind::Text(value, code),
                ..
            },
        ] = tokens
        {
            if code.is_empty() {
                *text += &quote(value);
                return;
            }
            // The values stand where their code stands.
            let node = self.evaluate(code, scope);
            let mut whole = quote(&without_code(value, self.code.language));
            whole = whole.replace(PLACE, &format!("{MARK}{node}{MARK}"));
            *text += &whole;
            return;
        } else if let [
            Token {
                kind: Kind::Name(name),
                ..
            },
        ] = tokens
        {
            let variable = self.variable(scope, name);
            if let Some(value) = self.constants.get(&variable) {
                *text += &quote(value);
                return;
            }
        } else if let [
            Token {
                kind: Kind::Name(_),
                ..
            },
            dot,
            last,
        ] = tokens
            && dot.is_sign(".")
            && matches!(last.name(), Some("executable" | "execPath"))
        {
            let is_python = self.code.language == Language::Python;
            *text += if is_python { "python3" } else { "node" };
            return;
        } else {
            // `"cat " + path`
            for token in tokens {
                if let Kind::Text(value, _) = &token.kind {
                    *text += &quote(value);
                }
            }
        }
        let value = self.evaluate(tokens, scope);
        *text += &format!("{MARK}{value}{MARK}");
    }
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

/// Whether `open` is given a mode in which it writes.
fn is_written(inner: &[Token]) -> bool {
    split_commas(inner)
        .skip(1)
        .any(|part| match &part[part.len() - 1].kind {
            Kind::Text(mode, _) => mode.len() <= 3 && mode.contains(['w', 'a', 'x']),
            _ => false,
        })
}

//! Calls: what a function does with its arguments, of the language or of the skill itself.

use super::super::calls::{self, Effect, effect_of};
use super::super::graph::{Flow, Node, Place};
use super::super::program::{Call, Language};
use super::super::stores::ENVIRONMENT;
use super::super::tokens::{Kind, Token};
use super::chain::Chain;
use super::names::only_text;
use super::{Script, split_commas, split_items};

/// Names of calls whose function tells whether something holds, in lower case.
const TESTS: &str = " filter some every find findindex findlast sort sorted ";
/// Names of calls that fill a text with single values.
const TEMPLATES: &str = " format format_map substitute safe_substitute ";
/// Names of calls that return what the function returns that they are given.
const APPLIES: &str = " map imap starmap submit to_thread run_in_executor apply apply_async reduce then flatmap gather call ";

/// An argument of a call.
pub(super) struct Argument<'t> {
    pub name: Option<&'t str>,
    pub tokens: &'t [Token],
    pub node: Node,
}

/// The values of a call.
pub(super) struct Values {
    /// What stands before the point.
    pub receiver: Node,
    /// The arguments, and all of them together.
    pub nodes: Vec<Node>,
    pub all: Node,
    /// What has the address.
    pub target: Node,
    /// What the call returns.
    pub result: Node,
    pub place: Place,
}

impl Script<'_> {
    /// Puts a call into the graph and returns its value. `receiver` is the value before the point.
    pub(super) fn call(
        &mut self,
        chain: &Chain,
        receiver: Node,
        inner: &[Token],
        (scope, place): (usize, Place),
    ) -> Node {
        let (lower, effect) = self.effect_of_chain(chain);
        let result = self.program.graph.fresh();
        if effect == Effect::Starts
            || effect == Effect::Runs
                && self.code.language == Language::JavaScript
                && lower.starts_with("exec")
        {
            self.start_process(&lower, inner, result, (scope, place));
            return result;
        }
        let arguments = self.arguments(chain, &lower, (inner, result), scope);
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
            let fetched = self.program.add_fetched_node(target, place);
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
        self.connect(&lower, chain, (&arguments, scope), &values);
        self.change_receiver(&lower, chain, &arguments, &values);
        self.change_arguments(&lower, (&arguments, scope), &values);
        self.apply_given(&lower, (&arguments, scope), &values);
        self.hand_over(chain, &arguments, result, place);
        let is_input = matches!(first, Some(Kind::Number)) && inner.len() < 8
            || matches!(first, Some(Kind::Text(text, _)) if text == "/dev/stdin");
        if matches!(effect, Effect::Reads) && is_input {
            self.program.copy(self.code.input, result, place);
        }
        if matches!(effect, Effect::Reads) && is_written(inner) {
            // A handle to write by is the name of the file.
            self.program.copy(all, result, place);
        }
        result
    }

    /// What a call does, by the name that is written or by the one that it stands for: whichever
    /// does more.
    fn effect_of_chain(&self, chain: &Chain) -> (String, Effect) {
        let is_python = self.code.language == Language::Python;
        let written = chain.written.to_ascii_lowercase();
        let effect = effect_of(&written, is_python);
        let mut known = chain.known.to_ascii_lowercase();
        if !is_python {
            // `fetch.call(null, url)`
            for end in [".call", ".apply"] {
                let length = known.strip_suffix(end).map_or(known.len(), str::len);
                known.truncate(length);
            }
        }
        let other = effect_of(&known, is_python);
        let is_written = effect != Effect::Passes && calls::is_network(&written);
        if is_written || other == Effect::Passes && !calls::is_network(&known) {
            (written, effect)
        } else {
            (known, other)
        }
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
            Effect::SendsThere => self.send_there(path, values),
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
                self.program.copy(all, self.code.output, place);
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

    /// A call that sends on a connection.
    fn send_there(&mut self, path: &str, values: &Values) {
        let Values {
            receiver,
            all,
            target,
            result,
            place,
            ..
        } = *values;
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
            // What connects signs in with what it gets.
            let calls = if last == Some("connect") {
                &mut self.program.if_known
            } else {
                &mut self.program.if_connected
            };
            calls.push((receiver, number));
        }
        let graph = &mut self.program.graph;
        if path.ends_with("write") || path.ends_with("end") {
            graph.edge(all, receiver, Flow::Write, place);
        }
        // `mapping.get(name)`: a part of the value, or what is given for it.
        graph.edge(receiver, result, Flow::Narrow, place);
        graph.edge(all, result, Flow::Narrow, place);
    }

    /// Evaluates arguments. A function among them gets what the call returns, and returns into it.
    fn arguments<'t>(
        &mut self,
        chain: &Chain,
        path: &str,
        (inner, result): (&'t [Token], Node),
        scope: usize,
    ) -> Vec<Argument<'t>> {
        let mut arguments = Vec::new();
        let last = path.rsplit('.').next().unwrap_or(path);
        for part in split_items(inner, self.code.language) {
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
                // A test returns no value, but whether it holds.
                if !calls::is_in(TESTS, last) {
                    let returned = self.program.returned(file, &unnamed);
                    self.program.copy(returned, result, place);
                }
                continue;
            }
            let value = self.evaluate(tokens, scope);
            let node = self.program.graph.fresh();
            let is_header = name.is_some_and(calls::is_header);
            let flow = if is_header {
                Flow::Header
            } else if calls::is_in(TEMPLATES, last) && self.is_environment(tokens, scope) {
                Flow::Narrow
            } else {
                Flow::Copy
            };
            // The environment of a process is given to it, and the key by which a client signs in is
            // used. Neither is sent.
            let is_passed =
                chain.known.contains("@modelcontextprotocol") && has_environment(tokens);
            if !is_passed
                && !name.is_some_and(|name| {
                    matches!(name, "env" | "key_filename" | "pkey" | "private_key")
                })
            {
                self.program.graph.edge(value, node, flow, place);
            }
            self.program.arguments.push(node);
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

    /// Whether an argument is the environment: `os.environ`, `**os.environ`.
    fn is_environment(&self, tokens: &[Token], scope: usize) -> bool {
        let tokens = match tokens {
            [stars, rest @ ..] if stars.is_sign("**") || stars.is_sign("...") => rest,
            _ => tokens,
        };
        let path = self.path_of_expression(tokens, scope);
        path.is_some_and(|path| matches!(path.as_str(), "os.environ" | "process.env"))
    }

    /// Joins arguments with the parameters of a function of this name, and its value with the call.
    fn hand_over(&mut self, chain: &Chain, arguments: &[Argument<'_>], result: Node, place: Place) {
        let mut names: Vec<&str> = Vec::new();
        for path in [&chain.written, &chain.known] {
            let mut parts = path.rsplit('.');
            let name = match parts.next() {
                // `Class.new(…)`
                Some("new" | "call" | "apply") => parts.next(),
                // The constructor of the class above.
                Some("super") => Some("constructor"),
                name => name,
            };
            let name = name.filter(|name| !name.is_empty() && !name.ends_with(')'));
            names.extend(name.filter(|name| !names.contains(name)));
        }
        for name in names {
            let name = self.folded(name).into_owned();
            self.hand_over_to(&name, arguments, result, place);
        }
    }

    fn hand_over_to(&mut self, name: &str, arguments: &[Argument<'_>], result: Node, place: Place) {
        let file = self.file();
        let returned = self.program.returned(file, name);
        self.program.copy(returned, result, place);
        for (number, argument) in (1..).zip(arguments) {
            let to = match argument.name {
                Some(param) => {
                    let all = self.program.named_argument(file, name, "**");
                    self.program.copy(argument.node, all, place);
                    self.program.named_argument(file, name, param)
                }
                None => self.program.argument(file, name, number),
            };
            self.program.copy(argument.node, to, place);
        }
    }

    /// A function that is passed by its name gets what the call has.
    fn apply_given(
        &mut self,
        path: &str,
        (arguments, scope): (&[Argument<'_>], usize),
        values: &Values,
    ) {
        let Values {
            result, all, place, ..
        } = *values;
        let file = self.file();
        let is_python = self.code.language == Language::Python;
        if matches!(path, "environment.getenvironmentvariables") {
            self.program.add_secret(result, ENVIRONMENT, true, place);
        }
        let last = path.rsplit('.').next().unwrap_or(path);
        if calls::is_in(" parse_args parse_known_args parseargs opts getopt ", last) {
            self.take_words(result, place);
        }
        if path == "input" && is_python || last == "readline" && path.starts_with("sys.stdin") {
            self.program.copy(self.code.input, result, place);
        }
        if matches!(path, "os.getenv" | "os.environ.get" | "deno.env.get")
            && let Some(name) = arguments.first().and_then(|one| only_text(one.tokens))
        {
            self.take_exported(&format!("os.environ.{name}"), result, place);
        }
        for argument in arguments {
            if let [
                Token {
                    kind: Kind::Name(given),
                    ..
                },
            ] = argument.tokens
                && argument.name.is_none_or(|name| name == "target")
            {
                let to = self.program.argument(file, given, 1);
                self.program.copy(result, to, place);
                if calls::is_in(APPLIES, last) {
                    let returned = self.program.returned(file, given);
                    self.program.copy(returned, result, place);
                }
            }
            let is_name = matches!(
                argument.tokens.first().map(|token| &token.kind),
                Some(Kind::Name(_))
            );
            let Some(given) = Some(argument.tokens)
                .filter(|tokens| is_name && tokens.len() < 8)
                .and_then(|tokens| self.path_of_expression(tokens, scope))
            else {
                continue;
            };
            let given = given.to_ascii_lowercase();
            match effect_of(&given, is_python) {
                Effect::Runs => {
                    self.program.add_call(result, Call::Runs, result, place);
                }
                Effect::Reads if argument.name.is_none() => {
                    self.program.graph.edge(all, result, Flow::Read, place);
                }
                // `retry(fetch, url, body)`
                Effect::Sends => {
                    self.program.add_call(all, Call::Sends, all, place);
                }
                Effect::SendsThere if calls::is_network(&given) => {
                    self.program.add_call(all, Call::Sends, all, place);
                }
                _ => {}
            }
        }
    }
}

/// Whether an object has the environment of a process, `env`.
fn has_environment(tokens: &[Token]) -> bool {
    let object = tokens.first().and_then(|token| token.group(b'{'));
    split_commas(object.unwrap_or_default()).any(|part| part[0].name() == Some("env"))
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

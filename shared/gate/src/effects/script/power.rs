//! Commands of PowerShell: `Verb-Noun -Name value | Verb-Noun`.

use super::super::calls::{self, Effect, effect_of};
use super::super::graph::{Flow, Node, Place};
use super::super::program::Call;
use super::super::stores::ENVIRONMENT;
use super::super::tokens::{Kind, Token};
use super::Script;

/// Short names of commands, which have no hyphen.
const ALIASES: &str =
    " gc irm iwr iex cat type curl wget echo ni sc copy cp move mv gci dir ls saps start ";

/// A word of a command: the name of its parameter, and the value.
struct Given {
    parameter: String,
    node: Node,
}

/// A command with its words.
struct Invoked {
    given: Vec<Given>,
    /// What the command before it in the pipe prints.
    piped: Option<Node>,
    place: Place,
}

impl Script<'_> {
    /// Reads commands with pipes between them, if the expression is one. Its value goes to `result`.
    pub(super) fn read_pipeline(&mut self, tokens: &[Token], scope: usize, result: Node) -> bool {
        let parts: Vec<&[Token]> = tokens.split(|token| token.is_sign("|")).collect();
        let has_command = parts.iter().any(|part| is_command(part));
        if !has_command {
            return false;
        }
        let mut piped = None;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let place = self.place(part[0].at);
            if let Some(piped) = piped {
                // `ForEach-Object { $_ }`
                let variable = self.variable(scope, "_");
                self.program.copy(piped, variable, place);
            }
            let value = if is_command(part) {
                self.read_command(part, scope, piped)
            } else {
                self.evaluate(part, scope)
            };
            piped = Some(value);
            self.program.copy(value, result, place);
        }
        true
    }

    fn read_command(&mut self, tokens: &[Token], scope: usize, piped: Option<Node>) -> Node {
        let place = self.place(tokens[0].at);
        let tokens = if tokens[0].is_sign("&") || tokens[0].is_sign(".") {
            &tokens[1..]
        } else {
            tokens
        };
        let result = self.program.graph.fresh();
        let Some(first) = tokens.first() else {
            return result;
        };
        let name = match &first.kind {
            Kind::Name(name) if !self.is_variable(first) => name.to_ascii_lowercase(),
            _ => String::new(),
        };
        if matches!(name.as_str(), "curl" | "wget")
            || tokens.get(1).is_some_and(|dot| dot.is_sign("."))
                && tokens.get(2).and_then(Token::name) == Some("exe")
        {
            self.read_program(tokens, scope, (result, piped, place));
            return result;
        }
        if name.is_empty() {
            // `. ./lib.ps1`
            let written = self.code.text.get(first.at..).unwrap_or_default();
            let path = written.split_whitespace().next().unwrap_or_default();
            if let Some(other) = self.program.own_file(path) {
                let file = self.file();
                self.program.imports.push((file, other));
            }
        }
        let given = self.read_parameters(&tokens[usize::from(!name.is_empty())..], scope);
        let all = self.program.graph.fresh();
        for one in &given {
            let flow = if calls::is_header(&one.parameter) {
                Flow::Header
            } else {
                Flow::Copy
            };
            self.program.graph.edge(one.node, all, flow, place);
        }
        if let Some(piped) = piped {
            self.program.copy(piped, all, place);
        }
        let invoked = Invoked {
            given,
            piped,
            place,
        };
        self.apply_command((&name, effect_of(&name, false)), &invoked, all, result);
        // A function of the skill.
        let own = first.name().unwrap_or_default();
        let file = self.file();
        let returned = self.program.returned(file, own);
        self.program.copy(returned, result, place);
        for (number, one) in (1..).zip(&invoked.given) {
            let argument = self.program.argument(file, own, number);
            self.program.copy(one.node, argument, place);
            let parameter = self.program.argument(file, own, 1);
            self.program.copy(one.node, parameter, place);
        }
        result
    }

    fn apply_command(
        &mut self,
        (name, effect): (&str, Effect),
        invoked: &Invoked,
        all: Node,
        result: Node,
    ) {
        let Invoked {
            ref given,
            piped,
            place,
        } = *invoked;
        let value_of = |names: &[&str], position: usize| {
            let named = given
                .iter()
                .find(|one| names.contains(&one.parameter.as_str()));
            let mut positional = given.iter().filter(|one| one.parameter.is_empty());
            named
                .or_else(|| positional.nth(position))
                .map(|one| one.node)
        };
        let program = &mut *self.program;
        match name {
            "set-content" | "out-file" | "add-content" | "sc" | "tee-object" | "new-item"
            | "ni" => {
                let path = value_of(&["path", "filepath", "literalpath"], 0);
                let value = value_of(&["value", "inputobject"], 1)
                    .or(piped)
                    .unwrap_or(all);
                if let Some(path) = path {
                    program.graph.edge(value, path, Flow::Write, place);
                }
            }
            "copy-item" | "move-item" | "copy" | "cp" | "move" | "mv" | "compress-archive" => {
                let from = value_of(&["path", "literalpath"], 0).or(piped);
                let to = value_of(&["destination", "destinationpath"], 1);
                if let (Some(from), Some(to)) = (from, to) {
                    let content = program.graph.fresh();
                    program.graph.edge(from, content, Flow::Read, place);
                    program.graph.edge(content, to, Flow::Write, place);
                }
            }
            "get-content" | "gc" | "cat" | "type" => {
                program.graph.edge(all, result, Flow::Read, place);
            }
            "get-childitem" | "gci" | "dir" | "ls" => program.copy(all, result, place),
            _ => match effect {
                Effect::Sends | Effect::SendsFile => {
                    program.add_call(all, Call::Sends, all, place);
                    if let Some(file) = value_of(&["infile", "form", "attachments", "source"], 99) {
                        program.add_call(file, Call::SendsFile, all, place);
                    }
                    let fetched = program.fetched(all, place);
                    match value_of(&["outfile", "destination"], 99) {
                        Some(file) => program.graph.edge(fetched, file, Flow::Write, place),
                        None => program.copy(fetched, result, place),
                    }
                }
                Effect::RunsFile => {
                    program.add_call(all, Call::RunsFile, all, place);
                }
                Effect::Runs => {
                    program.add_call(all, Call::Runs, all, place);
                }
                Effect::Prints => {
                    let printed = program.returned(self.code.place.file, "");
                    program.copy(all, printed, place);
                    program.copy(all, result, place);
                }
                Effect::Drops => {}
                _ if name.is_empty() => {
                    program.add_call(all, Call::Runs, all, place);
                    program.add_call(all, Call::RunsFile, all, place);
                }
                _ => program.copy(all, result, place),
            },
        }
    }

    /// A program that is no command of PowerShell: its words are those of a shell.
    fn read_program(
        &mut self,
        tokens: &[Token],
        scope: usize,
        (output, piped, place): (Node, Option<Node>, Place),
    ) {
        let mut text = tokens[0].name().unwrap_or_default().to_owned();
        let mut end = tokens[0].at + text.len();
        for token in &tokens[1..] {
            if token.at > end {
                text.push(' ');
            }
            match &token.kind {
                Kind::Text(value, code) => {
                    let shown = value.replace('\'', "'\\''");
                    text += &format!("'{shown}'");
                    if !code.is_empty() {
                        let node = self.evaluate(code, scope);
                        text += &format!("{0}{node}{0}", super::super::program::MARK);
                    }
                    end = token.at + value.len() + 2;
                }
                Kind::Name(name) if self.is_variable(token) => {
                    let node = self.variable(scope, name);
                    text += &format!("{0}{node}{0}", super::super::program::MARK);
                    end = token.at + name.len();
                }
                Kind::Name(name) => {
                    text += name;
                    end = token.at + name.len();
                }
                Kind::Sign(sign) => {
                    text += sign;
                    end = token.at + sign.len();
                }
                Kind::Group(_, inner) => {
                    let node = self.evaluate(inner, scope);
                    text += &format!("{0}{node}{0}", super::super::program::MARK);
                    end = token.at;
                }
                Kind::Number => {
                    text.push('0');
                    end = token.at + 1;
                }
                Kind::Line(_) => {}
            }
        }
        let input = piped.unwrap_or_else(|| self.program.graph.fresh());
        self.read_command_line(text, [input, output], place);
    }

    /// Whether a name has its `$` in front.
    fn is_variable(&self, token: &Token) -> bool {
        token
            .at
            .checked_sub(1)
            .and_then(|at| self.code.text.as_bytes().get(at))
            == Some(&b'$')
    }

    fn read_parameters(&mut self, tokens: &[Token], scope: usize) -> Vec<Given> {
        let mut given: Vec<Given> = Vec::new();
        let mut parameter = String::new();
        let mut at = 0;
        while at < tokens.len() {
            let place = self.place(tokens[at].at);
            if tokens[at].is_sign("-")
                && tokens.get(at + 1).is_some_and(|next| next.name().is_some())
            {
                parameter = tokens[at + 1]
                    .name()
                    .unwrap_or_default()
                    .to_ascii_lowercase();
                // A switch has no value.
                if matches!(
                    parameter.as_str(),
                    "raw"
                        | "usebasicparsing"
                        | "force"
                        | "recurse"
                        | "append"
                        | "nonewline"
                        | "passthru"
                ) {
                    parameter.clear();
                }
                at += 2;
                continue;
            }
            // A value ends at a blank that is not in brackets.
            let mut end = at + 1;
            while end < tokens.len() && !self.has_blank_before(tokens[end].at) {
                end += 1;
            }
            let node = self.program.graph.fresh();
            let part = &tokens[at..end];
            let from = tokens[at]
                .at
                .saturating_sub(usize::from(self.is_variable(&tokens[at])));
            if !part
                .iter()
                .any(|token| matches!(token.kind, Kind::Text(..) | Kind::Group(..)))
            {
                // A path or an address without quotation marks.
                let until = tokens.get(end).map_or(self.code.text.len(), |next| next.at);
                let written = self.code.text.get(from..until).unwrap_or_default();
                let written = written.split_whitespace().next().unwrap_or_default();
                let literal = self.program.literal(written, place);
                self.program.copy(literal, node, place);
                if written.to_ascii_lowercase().starts_with("env:") {
                    self.program.add_secret(node, ENVIRONMENT, true, place);
                }
            }
            let value = self.evaluate(part, scope);
            self.program.copy(value, node, place);
            given.push(Given {
                parameter: std::mem::take(&mut parameter),
                node,
            });
            at = end;
        }
        given
    }

    fn has_blank_before(&self, at: usize) -> bool {
        let text = self.code.text.as_bytes();
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        let before = if before == Some(&b'$') {
            at.checked_sub(2).and_then(|at| text.get(at))
        } else {
            before
        };
        before.is_some_and(u8::is_ascii_whitespace)
    }
}

/// Whether a command begins here, and no expression.
fn is_command(tokens: &[Token]) -> bool {
    let Some(first) = tokens.first() else {
        return false;
    };
    if first.is_sign("&") || first.is_sign(".") {
        return tokens.len() > 1;
    }
    let Some(name) = first.name() else {
        return false;
    };
    let next_to = tokens
        .get(1)
        .is_some_and(|next| next.at == first.at + name.len());
    let is_alias = calls::is_in(ALIASES, &name.to_ascii_lowercase());
    let has_hyphen = name.contains('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    (is_alias && (!next_to || tokens.get(1).is_some_and(|next| next.is_sign(".")))) || has_hyphen
}

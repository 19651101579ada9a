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

/// Programs that PowerShell starts as a shell does, with plain words.
const PROGRAMS: &str = " curl wget nslookup scp sftp ssh rsync ftp nc ncat git gh cmd python python3 py node npx bash sh tar certutil aws az gcloud gsutil rclone kubectl docker npm ";

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

/// Where a program that is started stands.
struct Started {
    scope: usize,
    /// What it prints, and what the command before it in the pipe prints.
    output: Node,
    piped: Option<Node>,
    place: Place,
    /// The values of the code in its words, if it is evaluated already.
    known: Option<Node>,
}

impl Script<'_> {
    /// Reads commands with pipes between them, if the expression is one. Its value goes to `result`.
    pub(super) fn read_pipeline(&mut self, tokens: &[Token], scope: usize, result: Node) -> bool {
        let parts: Vec<&[Token]> = tokens.split(|token| token.is_sign("|")).collect();
        let has_command = parts.iter().any(|part| self.is_command(part, scope));
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
            // `Get-Content a > b`
            let sign = part.iter().position(|token| token.is_sign(">"));
            let (part, to) = part.split_at(sign.unwrap_or(part.len()));
            let value = if self.is_command(part, scope) {
                self.read_command(part, scope, piped)
            } else {
                self.evaluate(part, scope)
            };
            let to = to.split(|token| token.is_sign(">")).next_back();
            for file in self.read_parameters(to.unwrap_or_default(), scope) {
                self.program
                    .graph
                    .edge(value, file.node, Flow::Write, place);
            }
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
        let name = self.command_name(first, scope);
        let is_program = calls::is_in(PROGRAMS, name.strip_suffix(".exe").unwrap_or(&name))
            || tokens.get(1).is_some_and(|dot| dot.is_sign("."))
                && tokens.get(2).and_then(Token::name) == Some("exe");
        if is_program {
            let words: Vec<&Token> = tokens.iter().collect();
            let started = Started {
                scope,
                output: result,
                piped,
                place,
                known: None,
            };
            self.read_program(&words, &started);
            return result;
        }
        if matches!(name.as_str(), "set-alias" | "new-alias" | "sal" | "nal") {
            self.name_command(&tokens[1..], scope);
        }
        if name.is_empty() {
            self.import_file(first.at);
        }
        if name == "join-path" {
            self.find_joined(tokens, result, scope);
        }
        self.blocks.clear();
        let given = self.read_parameters(&tokens[usize::from(!name.is_empty())..], scope);
        let blocks = std::mem::take(&mut self.blocks);
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
        if matches!(name.as_str(), "start-process" | "saps" | "start") {
            let started = Started {
                scope,
                output: result,
                piped,
                place,
                known: Some(all),
            };
            self.start_program(tokens, &started);
        }
        let invoked = Invoked {
            given,
            piped,
            place,
        };
        // `& { … }`
        if first.group(b'{').is_some() {
            self.program.copy(all, result, place);
        }
        self.apply_command((&name, effect_of(&name, false)), &invoked, all, result);
        self.hand_over_given(&[first.name().unwrap_or_default()], &invoked, result);
        let blocks: Vec<&str> = blocks.iter().map(String::as_str).collect();
        self.hand_over_given(&blocks, &invoked, result);
        result
    }

    /// `. ./lib.ps1`
    fn import_file(&mut self, at: usize) {
        let written = self.code.text.get(at..).unwrap_or_default();
        let path = written.split_whitespace().next().unwrap_or_default();
        if let Some(other) = self.program.own_file(path) {
            let file = self.file();
            self.program.imports.push((file, other));
        }
    }

    /// Joins what a command is given with the parameters of functions of the skill.
    fn hand_over_given(&mut self, functions: &[&str], invoked: &Invoked, result: Node) {
        let (file, place) = (self.file(), invoked.place);
        for function in functions.iter().filter(|name| !name.is_empty()) {
            let own = self.folded(function).into_owned();
            let returned = self.program.returned(file, &own);
            self.program.copy(returned, result, place);
            for (number, one) in (1..).zip(&invoked.given) {
                let argument = self.program.argument(file, &own, number);
                self.program.copy(one.node, argument, place);
                let parameter = self.program.argument(file, &own, 1);
                self.program.copy(one.node, parameter, place);
                if !one.parameter.is_empty() {
                    let named = self.program.named_argument(file, &own, &one.parameter);
                    self.program.copy(one.node, named, place);
                }
            }
            if let Some(piped) = invoked.piped {
                let parameter = self.program.argument(file, &own, 1);
                self.program.copy(piped, parameter, place);
            }
        }
    }

    /// The name of a command in lower case: as it is written, in a text, or in a variable.
    fn command_name(&mut self, first: &Token, scope: usize) -> String {
        let name = match &first.kind {
            Kind::Text(text, code) if code.is_empty() => text.clone(),
            // `& "$env:SystemRoot\\System32\\curl.exe"`
            Kind::Text(text, _) => {
                let last = text.rsplit(['\\', '/']).next().unwrap_or_default();
                match last.rsplit_once('.') {
                    Some((name, end)) if end.eq_ignore_ascii_case("exe") && !name.contains('$') => {
                        last.to_owned()
                    }
                    _ => String::new(),
                }
            }
            Kind::Name(name) if self.is_variable(first) => {
                let variable = self.variable(scope, name);
                self.constants.get(&variable).cloned().unwrap_or_default()
            }
            Kind::Name(name) => {
                let name = self.folded(name);
                self.path_of(scope, &name)
                    .unwrap_or_else(|| name.into_owned())
            }
            _ => String::new(),
        };
        name.to_ascii_lowercase()
    }

    /// `Set-Alias -Name a -Value b`
    fn name_command(&mut self, tokens: &[Token], scope: usize) {
        let mut names = tokens.iter().enumerate().filter_map(|(at, token)| {
            let is_parameter = at > 0 && tokens[at - 1].is_sign("-");
            match &token.kind {
                Kind::Name(name) | Kind::Text(name, _) if !is_parameter => Some(name),
                _ => None,
            }
        });
        if let (Some(name), Some(path)) = (names.next(), names.next()) {
            let name = name.to_ascii_lowercase();
            self.set_path(scope, &name, path.to_ascii_lowercase());
        }
    }

    /// `Start-Process curl.exe -ArgumentList '-T', $file`: the program with its words.
    fn start_program(&mut self, tokens: &[Token], started: &Started) {
        let mut words: Vec<&Token> = Vec::new();
        let mut open: Vec<&Token> = tokens[1..].iter().rev().collect();
        while let Some(token) = open.pop() {
            match &token.kind {
                Kind::Group(b'(', inner) => open.extend(inner.iter().rev()),
                Kind::Sign("," | "@") => {}
                Kind::Sign("-") => {
                    // The names of its own parameters.
                    open.pop();
                }
                _ => words.push(token),
            }
        }
        if words
            .first()
            .is_some_and(|first| matches!(first.kind, Kind::Name(_) | Kind::Text(..)))
        {
            self.read_program(&words, started);
        }
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
                    let fetched = program.add_fetched_node(all, place);
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
    fn read_program(&mut self, tokens: &[&Token], started: &Started) {
        let scope = started.scope;
        let mark = |node: Node| format!("{0}{node}{0}", super::super::program::MARK);
        let mut text = match &tokens[0].kind {
            Kind::Name(name) => name.clone(),
            Kind::Text(path, _) => {
                let name = path.rsplit(['\\', '/']).next();
                name.unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
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
                        let node = started.known;
                        text += &mark(node.unwrap_or_else(|| self.evaluate(code, scope)));
                    }
                    end = token.at + value.len() + 2;
                }
                Kind::Name(name) if self.is_variable(token) => {
                    let node = self.variable(scope, name);
                    text += &mark(node);
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
                    let node = started.known;
                    text += &mark(node.unwrap_or_else(|| self.evaluate(inner, scope)));
                    end = token.at;
                }
                Kind::Number => {
                    text.push('0');
                    end = token.at + 1;
                }
                Kind::Line(_) => {}
            }
        }
        let input = started.piped.unwrap_or_else(|| self.program.graph.fresh());
        self.read_command_line(text, [input, started.output], started.place);
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

    /// Whether a command begins here, and no expression.
    fn is_command(&self, tokens: &[Token], scope: usize) -> bool {
        let Some(first) = tokens.first() else {
            return false;
        };
        if first.is_sign("&") || first.is_sign(".") {
            return tokens.len() > 1;
        }
        let Some(name) = first.name().filter(|_| !self.is_variable(first)) else {
            return false;
        };
        let next_to = tokens
            .get(1)
            .is_some_and(|next| next.at == first.at + name.len());
        let lower = name.to_ascii_lowercase();
        let is_alias = calls::is_in(ALIASES, &lower)
            || calls::is_in(PROGRAMS, &lower)
            || self.path_of(scope, &lower).is_some();
        let has_hyphen = name.contains('-')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (is_alias && (!next_to || tokens.get(1).is_some_and(|next| next.is_sign("."))))
            || has_hyphen
    }
}

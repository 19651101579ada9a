//! Calls that change what they are called on, or an argument: `list.append(x)`, `a.pipe(b)`.

use super::super::calls::{self, is_in};
use super::super::graph::{Flow, Node};
use super::super::program::Call;
use super::super::tokens::{Kind, Token};
use super::Script;
use super::chain::{Chain, is_in_header};
use super::invoke::{Argument, Values};

/// Names of calls that put their arguments into what stands before the point, in lower case.
const FILLS: &str = " append appendleft appendchild extend extendleft insert add addall addrange update setdefault push unshift set setitem put put_nowait enqueue offer write writeline writelines writestr set_content add_attachment attach add_alternative set_payload addhandler emit dispatch dispatchevent publish postmessage add_argument add_option ";
/// Names of calls that put their arguments into the first one.
const FILLS_FIRST: &str =
    " assign heappush insort insort_left insort_right array_push merge defaults setattr ";
/// Names of calls that hand a stream to the next one.
const PIPES: &str = " pipe pipeto pipethrough pipeline copyfileobj ";

impl Script<'_> {
    /// Puts the arguments of a call into the variables before its point.
    pub(super) fn change_receiver(
        &mut self,
        path: &str,
        chain: &Chain,
        arguments: &[Argument<'_>],
        values: &Values,
    ) {
        let last = path.rsplit('.').next().unwrap_or(path);
        self.write_down_call(path, chain, arguments);
        if is_in(" write end communicate ", last) {
            self.program
                .copy(values.all, self.process_input, values.place);
        }
        let is_module = calls::is_network(path) || path.starts_with("process.stdout");
        if !path.contains('.') || is_module || !is_in(FILLS, last) {
            return;
        }
        let flow = if is_in_header(path) {
            Flow::Header
        } else {
            Flow::Copy
        };
        for owner in &chain.owners {
            let (all, place) = (values.all, values.place);
            self.program.graph.edge(all, *owner, flow, place);
        }
    }

    /// Puts the arguments of a call into the first one, or into the stream that they go to.
    pub(super) fn change_arguments(
        &mut self,
        path: &str,
        (arguments, scope): (&[Argument<'_>], usize),
        values: &Values,
    ) {
        let last = path.rsplit('.').next().unwrap_or(path);
        let Values {
            all,
            receiver,
            target,
            place,
            ..
        } = *values;
        if is_in(FILLS_FIRST, last)
            && let Some(first) = arguments.first()
            && let Some(variable) = self.variable_of(first.tokens, scope)
        {
            self.program.copy(all, variable, place);
        }
        if last == "rename"
            && path.contains('.')
            && let [first] = arguments
        {
            // `path.rename(other)`
            let content = self.program.graph.fresh();
            self.program
                .graph
                .edge(receiver, content, Flow::Read, place);
            self.program
                .graph
                .edge(content, first.node, Flow::Write, place);
        }
        if !is_in(PIPES, last) {
            return;
        }
        let sent = self.program.graph.fresh();
        self.program.copy(all, sent, place);
        self.program.copy(receiver, sent, place);
        // An object that hands a stream to itself is no client.
        let is_other = |argument: &&Argument<'_>| !matches!(argument.tokens, [only] if matches!(only.name(), Some("this" | "self")));
        for argument in arguments.iter().filter(is_other) {
            // A stream that writes a file is the name of the file.
            let graph = &mut self.program.graph;
            graph.edge(sent, argument.node, Flow::Write, place);
            let number = self.program.add_call(sent, Call::Sends, target, place);
            self.program.if_connected.push((argument.node, number));
            if let Some(variable) = self.variable_of(argument.tokens, scope) {
                self.program.copy(sent, variable, place);
            }
        }
    }

    /// The variable that stands here alone, with its members.
    fn variable_of(&mut self, tokens: &[Token], scope: usize) -> Option<Node> {
        let mut path = String::new();
        for token in tokens {
            match &token.kind {
                Kind::Name(name) if !super::is_keyword(name) => path += name,
                Kind::Sign(".") => path.push('.'),
                _ => return None,
            }
        }
        (!path.is_empty()).then(|| self.variable(scope, &path))
    }
}

//! Calls on connections. A value that is made with an address is one, whatever its type is called.

use super::super::calls::{Effect, effect_of, is_in};
use super::super::program::{Call, Language};
use super::super::tokens::{Kind, Token};
use super::chain::Chain;
use super::invoke::{Argument, Values};
use super::{LONGEST_JOINED, Script};
use crate::rules::hosts;

/// Parts of names of calls that make connections, in lower case.
const CLIENTS: [&str; 10] = [
    "connect",
    "client",
    "channel",
    "transport",
    "telnet",
    "handler",
    "session",
    "server",
    "webhook",
    "single",
];
/// Parts of names of calls that connect what stands before the point.
const OPENS: [&str; 5] = ["connect", "init", "setopt", "configure", "addhandler"];
/// Names of arguments that are addresses, in lower case.
const ADDRESSES: &str =
    " url uri host hostname server address addr base_url baseurl endpoint endpoint_url broker dsn ";
/// Names of calls that hold or take apart what they are given, and send nothing.
const TEXTS: &str = " append extend push pop indexof isarray parse safeparse exit replaceall sort concat urlparse urlsplit urljoin url uri quote strip replace format join ";
/// Parts of names of calls and arguments that sign in.
const LOGINS: [&str; 11] = [
    "auth", "token", "key", "cookie", "secret", "pass", "cred", "user", "login", "cert", "sign",
];

impl Script<'_> {
    /// Finds calls that make connections, and those that may be made on one.
    pub(super) fn connect(
        &mut self,
        path: &str,
        chain: &Chain,
        (arguments, scope): (&[Argument<'_>], usize),
        values: &Values,
    ) {
        let effect = effect_of(path, self.code.language == Language::Python);
        let last = path.rsplit('.').next().unwrap_or(path);
        let has_part = |parts: &[&str]| parts.iter().any(|part| last.contains(part));
        let is_unknown = effect == Effect::Passes && !is_in(TEXTS, last);
        if !is_unknown && last != "connect" || arguments.is_empty() {
            return;
        }
        let is_client = has_part(&CLIENTS);
        let named = |argument: &Argument<'_>| {
            let name = argument.name.unwrap_or_default().to_ascii_lowercase();
            is_in(ADDRESSES, &name)
        };
        let mut is_made = false;
        let mut is_sure = is_client;
        for argument in arguments {
            let is_named = named(argument);
            if self.has_address(argument.tokens, is_client || is_named, scope) {
                is_made = true;
                is_sure |= is_named;
            }
        }
        let place = values.place;
        if is_made {
            self.program.made.push(values.result);
            if has_part(&OPENS) {
                self.program.made.extend(&chain.owners);
            }
        }
        if is_made && is_sure {
            let sent = self.program.graph.fresh();
            // The members of an object have names of their own.
            let is_object = |one: &Argument<'_>| {
                let mut tokens = one.tokens.iter();
                tokens
                    .next()
                    .is_some_and(|first| first.group(b'{').is_some())
            };
            let is_sent = |one: &&Argument<'_>| !signs_in(one.name) && !is_object(one);
            for argument in arguments.iter().filter(is_sent) {
                self.program.copy(argument.node, sent, place);
            }
            self.program.add_call(sent, Call::Sends, values.all, place);
        }
        if is_unknown && path.contains('.') && !has_part(&LOGINS) {
            let number = self
                .program
                .add_call(values.all, Call::Sends, values.target, place);
            self.program.if_made.push((values.receiver, number));
        }
    }

    /// Whether an argument has an address: one with a scheme or, if `is_host`, any host.
    fn has_address(&mut self, tokens: &[Token], is_host: bool, scope: usize) -> bool {
        tokens
            .iter()
            .take(LONGEST_JOINED)
            .any(|token| match &token.kind {
                Kind::Text(text, _) => is_address(text, is_host),
                Kind::Name(name) => {
                    let variable = self.variable(scope, name);
                    let constant = self.constants.get(&variable);
                    constant.is_some_and(|text| is_address(text, is_host))
                }
                Kind::Group(b'(' | b'{', inner) => inner.iter().take(LONGEST_JOINED).any(
                    |token| matches!(&token.kind, Kind::Text(text, _) if is_address(text, is_host)),
                ),
                _ => false,
            })
    }
}

/// Whether a text is an address with a scheme or, if `is_host`, begins with a host.
fn is_address(text: &str, is_host: bool) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_scheme = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    if !scheme.is_empty() {
        return scheme.len() < 24 && scheme != "file" && scheme.chars().all(is_scheme);
    }
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-.:[]".contains(letter);
    is_host
        && text.len() < 256
        && text.chars().all(is_name)
        && hosts::named(text.as_bytes()).next().is_some()
}

/// Whether an argument of this name signs in.
fn signs_in(name: Option<&str>) -> bool {
    let name = name.unwrap_or_default().to_ascii_lowercase();
    LOGINS.iter().any(|part| name.contains(part))
}

//! The rules, one file a family: data, expressions over lower-case text, and small functions.
//!
//! An id is `VG-<family>-<number>` and is never given again. Every rule has texts that it must find
//! and texts that it must pass; a test runs them through the whole gate.
//!
//! The comment at each rule has its figures on the tuned part of `tests/gate-accuracy`: in how many
//! of 166 malicious skills it finds something, how many of those no other rule flags (`sole flag
//! on`), in how many of 3,242 real skills it finds something, and how many of those it flags. A
//! rule without malicious skills there stands for what its examples show, which no other rule flags
//! (a test holds this).

/// What the rules of a file share: their category, the reason why they exist, and their severity
/// where it is one for all. Makes the function `rule` from the rest.
macro_rules! family {
    ($category:literal, $severity:expr, $why:literal) => {
        const fn rule(id: &'static str, name: &'static str) -> $crate::finding::Rule {
            $crate::finding::Rule::new(id, name, $category, $severity, $why)
        }
    };
    ($category:literal, $why:literal) => {
        const fn rule(
            id: &'static str,
            name: &'static str,
            severity: $crate::finding::Severity,
        ) -> $crate::finding::Rule {
            $crate::finding::Rule::new(id, name, $category, severity, $why)
        }
    };
}
/// What fetches something that a command line can go on with: a download, or the answer of a name
/// server.
macro_rules! fetch {
    () => {
        r"(?:\bcurl(?:\.exe)?\b|\bwget\b|\biwr\b|\birm\b|\binvoke-webrequest\b|\binvoke-restmethod\b|\bfetch\s+-|\.downloadstring\(|\b(?:nslookup|dig|resolve-dnsname)\s)"
    };
}
/// Words of [`fetch`], one of which a rule needs.
macro_rules! fetch_words {
    () => {
        &[
            "curl",
            "wget",
            "iwr",
            "irm",
            "invoke-webrequest",
            "invoke-restmethod",
            "fetch -",
            "downloadstring",
            "nslookup",
            "dig ",
            "resolve-dnsname",
        ]
    };
}
/// What stands before the program in a command line: other programs that start it, with their
/// options.
macro_rules! starter {
    () => {
        r"(?:[({]\s*)?(?:(?:sudo|doas|env|nohup|exec|command|builtin|time|timeout|nice|stdbuf|setsid|busybox|xargs)(?:\s+(?:-\S+(?:\s+[\w.-]+)??|\w+=\S*|\d+[smh]?))*\s+)*"
    };
}
/// A program that runs what it reads.
macro_rules! shell {
    () => {
        concat!(
            starter!(),
            r"(?:(?:/usr/(?:local/)?bin/|/bin/)?(?:env\s+)?(?:(?:ba|z|da|k|fi|tc|c)?sh|python[\d.]*|perl|ruby|node|deno|php|osascript|pwsh|powershell|iex|invoke-expression|eval)\b|\$\{?(?:shell|bash|0)\b\}?|(?:source|\.)\s+/dev/stdin)"
        )
    };
}
/// Files and stores that hold secrets.
macro_rules! store {
    () => {
        r"(?:\.ssh\b|id_rsa|id_ed25519|id_ecdsa|\.aws(?:[\\/]+(?:credentials|config|sso|cli)\b|/?[*\x22'\s)])|\.env(?:\.\w+)?\b|\.netrc|\.npmrc|\.pypirc|\.git-credentials|\.config[\\/]+gh|\.kube[\\/]+config|\.docker[\\/]+config|/etc/(?:passwd|shadow|sudoers)|\.gnupg|\bkeychain|login data|cookies\.sqlite|wallet\.dat|\.keystore|\.bash_history|\.zsh_history|credentials(?:\.json)?\b|\.claude(?:[\\/]|\.json)|\.codex[\\/]|\.openclaw/|\.clawdbot/|/proc/\S*/environ)"
    };
}
/// A variable whose name says that it is a secret.
macro_rules! secret_variable {
    () => {
        r"(?:\w*(?:secret|password|passwd|token|api_?key|apikey|private_?key|access_?key|credential|_key)s?\b)"
    };
}

/// What writes to the file that is named behind it.
macro_rules! writes {
    () => {
        r"(?:[^\s>=|-]\s*>>?\|?\s*|\btee\s+(?:-\S+\s+)*|\bsed\s+-i\S*\s[^\n]*?|\b(?:cp|mv|ln|install)\s[^\n|;&]*?\s|set-content\s|add-content\s|out-file\s)"
    };
}
/// The user's home folder.
macro_rules! home {
    () => {
        r"(?:~|\$\{?home\}?|\$env:userprofile|%userprofile%|expanduser\(|path\.home\(\)|homedir\(\)|/root|/(?:home|users)/[^/\s]+)"
    };
}
/// Settings, memories, hooks and servers of agents, below a home folder.
macro_rules! agent_file {
    () => {
        r"(?:\.claude(?:\.json|/(?:settings|claude\.md|hooks|memory|projects|agents|commands))|\.codex/(?:config|agents\.md|hooks|memor|prompts)|\.cursor/(?:mcp|rules|hooks)|\.gemini/(?:settings|gemini\.md)|\.copilot/|\.config/(?:opencode|goose|github-copilot|mcp)|\.openclaw/(?:openclaw\.json|workspace\S*/(?:soul|memory|agents|user|heartbeat|tools)\.md)|\.continue/config|\.windsurf|\.codeium/|claude_desktop_config\.json)"
    };
}
/// The same of one project.
macro_rules! project_agent_file {
    () => {
        r"(?:\.claude/(?:settings|hooks|commands|agents|claude)|\.cursor/(?:rules|mcp|hooks)|\bclaude\.md|\bagents\.md|\bsoul\.md|\bmemory\.md|\bheartbeat\.md|\bgemini\.md|\.codex/(?:config|hooks)|\.gemini/settings|copilot-instructions|\.mcp\.json|\.vscode/(?:settings|mcp|tasks))"
    };
}

mod credentials;
mod deception;
mod decode_exec;
mod destructive;
mod download;
pub(super) mod effects;
mod exfiltration;
pub(super) mod files;
pub(super) mod flow;
pub(super) mod hosts;
pub(super) mod installers;
mod leaks;
mod lures;
mod obfuscation;
mod persistence;
mod privilege;
mod prompt;
mod runs;
mod sending;
mod shells;
mod supply;
pub(super) mod unicode;
mod words;

#[cfg(test)]
mod neighbours;

use crate::rule::{ScanRule, place};

/// Where a command counts: wherever a person or an agent may take it from, or a program runs it.
const COMMANDS: u16 = place::SHELL
    | place::PROSE
    | place::CODE
    | place::HIDDEN
    | place::DECODED
    | place::DATA
    | place::FRONT
    | place::COMMENT;

/// Every rule, in a fixed order.
pub(super) fn all() -> impl Iterator<Item = &'static ScanRule> {
    [
        download::RULES,
        decode_exec::RULES,
        exfiltration::RULES,
        leaks::RULES,
        effects::RULES,
        credentials::RULES,
        prompt::RULES,
        deception::RULES,
        lures::RULES,
        persistence::RULES,
        destructive::RULES,
        privilege::RULES,
        shells::RULES,
        obfuscation::RULES,
        supply::RULES,
        unicode::RULES,
        files::RULES,
    ]
    .into_iter()
    .flatten()
}

//! The rules, one file a family: data, expressions over lower-case text, and small functions.
//!
//! An id is `VG-<family>-<number>` and is never given again. Every rule has texts that it must find and texts that it
//! must pass; a test runs them through the whole gate.
//!
//! The comment at each rule has its figures on the tuned part of `tests/gate-accuracy`: in how many of 166 malicious skills
//! it finds something, on how many of them it alone flags, in how many of 2,176 real skills it finds something, and how
//! many of those it flags. A rule without malicious skills there stands for what its examples show, which no other rule
//! flags (a test holds this).

macro_rules! fetch {
    () => {
        r"(?:\bcurl\b|\bwget\b|\biwr\b|\birm\b|\binvoke-webrequest\b|\binvoke-restmethod\b|\bfetch\s+-)"
    };
}
macro_rules! shell {
    () => {
        r"(?:sudo\s+(?:-\S+\s+)*)?(?:env\s+(?:\S+=\S+\s+)*)?(?:/usr/(?:local/)?bin/|/bin/)?(?:ba|z|da|k|fi)?(?:sh|python[\d.]*|perl|ruby|node|php|osascript|pwsh|powershell|iex|invoke-expression)\b"
    };
}
/// Files and stores that hold secrets.
macro_rules! store {
    () => {
        r"(?:\.ssh\b|id_rsa|id_ed25519|id_ecdsa|\.aws/|\.env(?:\.\w+)?\b|\.netrc|\.npmrc|\.pypirc|\.git-credentials|\.config/gh|\.kube/config|\.docker/config|/etc/(?:passwd|shadow|sudoers)|\.gnupg|keychain|login data|cookies\.sqlite|wallet\.dat|\.keystore|\.bash_history|\.zsh_history|credentials(?:\.json)?\b|\.claude(?:/|\.json)|\.openclaw/|\.clawdbot/|/proc/\S*/environ)"
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
        r"(?:>>?\s*|\btee\s+(?:-a\s+)?|\bsed\s+-i\S*\s[^\n]*?|\b(?:cp|mv|ln|install)\s[^\n|;&]*?\s|(?:write|append)file\w*\(|open\(|write_text\(|set-content\s|add-content\s|out-file\s|path\()"
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

mod credentials;
mod deception;
mod decode_exec;
mod destructive;
mod download;
mod exfiltration;
pub(super) mod files;
pub(super) mod hosts;
mod leaks;
mod lures;
mod obfuscation;
mod persistence;
mod privilege;
mod prompt;
mod sending;
mod shells;
mod supply;
pub(super) mod unicode;

use crate::rule::ScanRule;

/// Every rule, in a fixed order.
pub(super) fn all() -> impl Iterator<Item = &'static ScanRule> {
    [
        download::RULES,
        decode_exec::RULES,
        exfiltration::RULES,
        leaks::RULES,
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

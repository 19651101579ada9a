//! The rules, one file a family: data, expressions over lower-case text, and small functions.
//!
//! An id is `VG-<family>-<number>` and is never given again. Every rule has texts that it must find and texts that it
//! must pass; a test runs them through the whole gate.

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

mod credentials;
mod deception;
mod decode_exec;
mod destructive;
mod download;
mod exfiltration;
pub(super) mod files;
pub(super) mod hosts;
mod lures;
mod obfuscation;
mod persistence;
mod privilege;
mod prompt;
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

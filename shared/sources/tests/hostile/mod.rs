//! Hostile inputs: one table for each kind of source. Each row is an attack, and the code and a
//! part of the message of the error that it ends in.

mod archives;
mod files;
mod locks;
mod marketplaces;
mod packages;
mod registries;
mod repositories;
mod sites;
mod web;

use vault_format::text::is_deceptive;
use vault_sources::FetchError;

/// Checks the rows of a table, and reports all wrong ones together.
#[derive(Default)]
struct Table {
    rows: usize,
    wrong: Vec<String>,
}

impl Table {
    /// Checks one row. Every message must also be short, and show no character that hides text.
    fn check<T>(&mut self, row: &str, outcome: Result<T, FetchError>, code: &str, part: &str) {
        self.rows += 1;
        let found = match outcome {
            Ok(_) => "accepted".to_owned(),
            Err(error) => {
                let message = error.to_string();
                let is_readable = message.len() <= 2_000 && !message.chars().any(is_deceptive);
                if error.word() == code && message.contains(part) && is_readable {
                    return;
                }
                let start: String = message.chars().take(400).collect();
                format!("{} {start:?}, {} bytes", error.word(), message.len())
            }
        };
        self.wrong.push(format!("{row}: {found}"));
    }

    fn finish(self) {
        assert!(self.rows >= 20, "only {} rows", self.rows);
        assert!(self.wrong.is_empty(), "\n{}", self.wrong.join("\n"));
    }
}

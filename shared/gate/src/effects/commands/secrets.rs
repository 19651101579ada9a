//! Commands that print secrets.

use super::super::graph::Flow;
use super::super::program::Program;
use super::super::stores::kind_of;
use super::Arguments;

/// A command that prints a secret: the program, the words that it needs (`*` ends the beginning of
/// one), the kind of the secret, and whether it is one token.
type Row = (&'static str, &'static str, &'static str, bool);

const COMMANDS: [Row; 18] = [
    ("gh", "auth token", TOKEN, true),
    ("gcloud", "auth print-access-token", TOKEN, true),
    ("gcloud", "auth print-identity-token", TOKEN, true),
    ("az", "account get-access-token", TOKEN, true),
    (
        "aws",
        "configure export-credentials",
        "AWS credentials",
        false,
    ),
    ("aws", "sts get-session-token", "AWS credentials", false),
    ("git", "credential fill", "Git credentials", false),
    ("kubectl", "get secret*", "Kubernetes credentials", false),
    (
        "kubectl",
        "config view --raw",
        "Kubernetes credentials",
        false,
    ),
    ("gpg", "--export-secret*", "a GnuPG key", false),
    ("op", "item get", PASSWORDS, false),
    ("op", "read", PASSWORDS, true),
    ("pass", "show", PASSWORDS, true),
    ("bw", "get", PASSWORDS, true),
    ("bw", "export", PASSWORDS, false),
    ("vault", "kv get", "Terraform or Vault tokens", false),
    ("security", "find-*-password", PASSWORDS, true),
    ("security", "dump-keychain", PASSWORDS, false),
];
const TOKEN: &str = "an access token";
const PASSWORDS: &str = "a store of passwords";

impl Arguments<'_> {
    /// Marks what the command prints, if that is a secret.
    pub(super) fn find_secret(&self, program: &mut Program, name: &str) {
        let has = |wanted: &str| {
            let (begin, end) = wanted.split_once('*').unwrap_or((wanted, wanted));
            self.words.iter().any(|word| {
                let text = word.text.as_str();
                text == wanted || begin != end && text.starts_with(begin) && text.ends_with(end)
            })
        };
        // A program of its own signs in with what it asks for, and shows less of how.
        if !self.command.is_exact {
            return;
        }
        let row = COMMANDS
            .iter()
            .find(|row| row.0 == name && row.1.split(' ').all(has));
        let Some((_, _, store, is_token)) = row else {
            return;
        };
        let Some(kind) = kind_of(store) else {
            return;
        };
        let is_part = self.words.iter().any(|word| word.text.contains("jsonpath"));
        let flow = if *is_token || is_part {
            Flow::Narrow
        } else {
            Flow::Copy
        };
        let node = program.graph.fresh();
        program.add_secret(node, kind, true, self.place());
        program
            .graph
            .edge(node, self.command.output, flow, self.place());
    }
}

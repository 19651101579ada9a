//! Files and commands that hold secrets, and the services that the secrets belong to.

use crate::rule::Lazy;
use aho_corasick::AhoCorasick;
use std::sync::LazyLock;

/// A kind of secret.
pub(super) struct Store {
    /// How a finding calls it.
    pub name: &'static str,
    /// Its files, in a lower-case path.
    files: &'static str,
    /// Domains of the service that issued it. To send it there is its use.
    pub services: &'static [&'static str],
    /// Whether the secret is a key, which no request ever needs.
    pub is_key: bool,
    /// Domains that it signs in at; none if it may be any.
    pub domains: &'static [&'static str],
}

impl Store {
    /// Whether it is a file of variables, as deployments have them.
    pub(super) fn is_settings(&self) -> bool {
        self.name == DOTENV
    }

    /// Whether its file has one token and nothing else.
    pub(super) fn is_token(&self) -> bool {
        matches!(self.name, "an access token" | "Terraform or Vault tokens")
    }

    /// Whether it is the environment, or a file of variables: each program needs some of them.
    pub(super) fn is_environment(&self) -> bool {
        self.name == STORES[ENVIRONMENT].name || self.name == DOTENV
    }
}

const fn store(
    name: &'static str,
    files: &'static str,
    services: &'static [&'static str],
) -> Store {
    Store {
        name,
        files,
        services,
        is_key: false,
        domains: &[],
    }
}

const fn key(name: &'static str, files: &'static str) -> Store {
    Store {
        is_key: true,
        ..store(name, files, &[])
    }
}

/// Number of the whole environment in [`STORES`].
pub(super) const ENVIRONMENT: usize = 0;
/// Number of fetched content, which is no secret.
pub(super) const FETCHED: usize = STORES.len();

/// All kinds. A path belongs to the first one that fits.
pub(super) const STORES: [Store; 25] = [
    store("the environment", "/proc/[^/]+/environ", &[]),
    key(
        "a private SSH key",
        r"(?:^|[/\\ =@'\x22])\.ssh(?:[/\\]+(?:id[_*]\w*|\*|identity|[\w-]+_(?:rsa|ed25519|key)|[\w.-]+\.(?:pem|key))?)?(?:[^\w./\\-]|[*?]|$)|\bid_(?:rsa|ed25519|ecdsa|dsa)(?:[^\w.]|$)",
    ),
    Store {
        domains: &["amazonaws.com"],
        ..store(
            "AWS credentials",
            r"\.aws(?:[/\\](?:cred[\w*?]*|config|sso|cli)(?:\W|$)|[/\\]?(?:[*\x22'\s]|$))",
            &["sts.amazonaws.com", "iam.amazonaws.com"],
        )
    },
    Store {
        domains: &["googleapis.com", "google.com"],
        ..store(
            "Google Cloud credentials",
            r"application_default_credentials|\.config[/\\]gcloud|gcloud[/\\](?:credentials|access_tokens|legacy)",
            &[
                "oauth2.googleapis.com",
                "www.googleapis.com",
                "accounts.google.com",
            ],
        )
    },
    store(
        "Azure credentials",
        r"\.azure(?:[/\\](?:accesstokens|msal|azureprofile|service_principal)|[/\\]?(?:\*|$))",
        &["login.microsoftonline.com", "management.azure.com"],
    ),
    store(
        "Docker credentials",
        r"\.docker(?:[/\\]config|[/\\]?(?:\*|$))",
        &["docker.com", "docker.io", "ghcr.io"],
    ),
    store(
        "passwords in .netrc",
        r"(?:^|[/\\ =@'\x22])[._]netrc\b",
        &[],
    ),
    store(
        "Git credentials",
        r"\.git-credentials|\.config[/\\]git[/\\]credentials",
        &["api.github.com", "gitlab.com", "api.bitbucket.org"],
    ),
    store(
        "Kubernetes credentials",
        r"\.kube(?:[/\\]config|[/\\]?(?:\*|$))",
        &[],
    ),
    store("npm credentials", r"\.npmrc\b", &["registry.npmjs.org"]),
    store("PyPI credentials", r"\.pypirc\b", &["pypi.org"]),
    store(
        "GitHub credentials",
        r"\.config[/\\]gh\b|gh[/\\]hosts\.yml",
        &["api.github.com"],
    ),
    key("a GnuPG key", r"\.gnupg\b|secring\.gpg"),
    store(
        "the history of a shell",
        r"\.(?:bash|zsh|fish|python|mysql|psql|node_repl)_history|fish_history|consolehost_history",
        &[],
    ),
    store(
        "an agent's credentials",
        r"\.claude[/\\]\.credentials|\.codex[/\\]auth\.json|\.config[/\\]github-copilot|\.gemini[/\\]oauth_creds",
        &[
            "anthropic.com",
            "claude.ai",
            "claude.com",
            "openai.com",
            "chatgpt.com",
            "api.github.com",
            "githubcopilot.com",
            "oauth2.googleapis.com",
        ],
    ),
    store(
        "a browser's passwords or cookies",
        r"login data\b|cookies\.sqlite|logins\.json|key4\.db|cookies\.binarycookies|(?:default|profile \d+)[/\\](?:network[/\\])?cookies\b",
        &[],
    ),
    key(
        "a wallet",
        r"wallet\.dat|\.ethereum[/\\]keystore|\.config[/\\]solana[/\\]id\.json|\.bitcoin\b|exodus\.wallet|\.electrum",
    ),
    key(
        "passwords of the system",
        r"/etc/(?:shadow|gshadow|sudoers|master\.passwd)\b|/etc/ssl/private|login\.keychain|library[/\\]keychains",
    ),
    store(
        "Terraform or Vault tokens",
        r"\.terraform\.d[/\\]credentials|credentials\.tfrc|\.vault-token|\.terraformrc",
        &["terraform.io", "hashicorp.cloud"],
    ),
    store(
        "database passwords",
        r"\.pgpass\b|\.my\.cnf\b|\.cargo[/\\]credentials|\.gem[/\\]credentials",
        &["crates.io", "rubygems.org"],
    ),
    store(
        DOTENV,
        r"(?:^|[/\\ =@'\x22])\.env(?:\.(?:local|prod\w*|dev\w*|staging))?(?:[*\x22'\s]|$)",
        &[],
    ),
    store(
        "an access token",
        r"\.(?:cache[/\\])?huggingface[/\\]token|\.kaggle[/\\]kaggle\.json|\.claude\.json\b|\.cursor[/\\]mcp\.json",
        &["huggingface.co", "kaggle.com", "api.github.com"],
    ),
    store(
        "a store of passwords",
        r"\.password-store|\.kdbx\b|[/\\]share[/\\]keyrings",
        &[],
    ),
    store(
        "credentials of a registry or a storage",
        r"\.m2[/\\]settings\.xml|\.gradle[/\\]gradle\.properties|\.yarnrc\.yml|composer[/\\]auth\.json|rclone\.conf|\.s3cfg\b|\.boto\b|\.oci[/\\]config",
        &["registry.yarnpkg.com", "repo.maven.apache.org"],
    ),
    store(
        "the sessions of an agent",
        r"\.claude(?:[/\\](?:projects|history|transcripts)\b|[/\\]?(?:[*\x22'\s]|$))|\.codex[/\\](?:sessions|history)\b",
        &["anthropic.com", "openai.com"],
    ),
];

const DOTENV: &str = "a file of variables";

/// Returns the number of the kind of this name.
pub(super) fn kind_of(name: &str) -> Option<usize> {
    STORES.iter().position(|store| store.name == name)
}

static FILES: LazyLock<Vec<Lazy>> =
    LazyLock::new(|| STORES.iter().map(|store| Lazy::new(store.files)).collect());

/// Words of which each file of [`STORES`] has one. No other text is given to an expression.
pub(super) const WORDS: [&str; 58] = [
    "environ",
    ".ssh",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "id_dsa",
    ".aws",
    "application_default",
    "gcloud",
    ".azure",
    ".docker",
    "netrc",
    "git-credentials",
    "git/credentials",
    ".kube",
    ".npmrc",
    ".pypirc",
    ".config/gh",
    "hosts.yml",
    ".gnupg",
    "secring",
    "_history",
    ".credentials",
    "auth.json",
    ".openclaw",
    "github-copilot",
    "oauth_creds",
    "login data",
    "cookies",
    "logins.json",
    "key4.db",
    "wallet",
    ".ethereum",
    "solana",
    "/etc/",
    "keychain",
    ".terraform",
    "vault-token",
    ".pgpass",
    ".my.cnf",
    "/credentials",
    ".env",
    "huggingface",
    "kaggle.json",
    ".claude.json",
    "mcp.json",
    ".password-store",
    ".kdbx",
    "keyrings",
    ".m2",
    ".gradle",
    ".yarnrc",
    "rclone.conf",
    ".s3cfg",
    ".boto",
    ".oci",
    ".claude",
    ".codex",
];

static FINDER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .build(WORDS)
        .ok()
});

/// Returns the number of the kind of secret that a path or a word names.
pub(super) fn find_store(text: &str) -> Option<usize> {
    let has_word = || FINDER.as_ref().is_none_or(|finder| finder.is_match(text));
    if text.len() > 4_096 || !has_others(text) && !has_word() {
        return None;
    }
    let text = text.to_ascii_lowercase();
    // The public half of a key is for everybody.
    if is_public(&text) {
        return None;
    }
    let find = |text: &str| {
        FILES
            .iter()
            .position(|files| files.is_match(text.as_bytes()))
    };
    // `~/.aws//credentials` and `~/.{netrc,npmrc}`
    let text = if text.contains("//") {
        text.replace("//", "/")
    } else {
        text
    };
    let braced = text
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match braced {
        Some((before, (inner, after))) if inner.contains(',') => inner
            .split(',')
            .take(MOST_ALTERNATIVES)
            .find_map(|part| find(&format!("{before}{part}{after}"))),
        _ => find(&text),
    }
}

/// Largest number of alternatives in a path that are looked at.
const MOST_ALTERNATIVES: usize = 8;

/// Whether a path leads to the public half of a key, or to another file beside it.
pub(super) fn is_public(path: &str) -> bool {
    let path = path.trim_end_matches(['"', '\'']);
    [".pub", "known_hosts", "authorized_keys", ".ssh/config"]
        .iter()
        .any(|end| path.ends_with(end))
}

/// Whether a path has backslashes, or a word that is part of no other kind.
fn has_others(text: &str) -> bool {
    text.contains('\\')
        || [".bitcoin", ".electrum", "exodus", ".{", "/{"]
            .iter()
            .any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_told_from_other_files() {
        for lazy in FILES.iter() {
            assert!(lazy.compiles());
        }
        for (path, name) in [
            ("~/.ssh/id_rsa", "a private SSH key"),
            ("$HOME/.ssh/id_ed25519", "a private SSH key"),
            (".ssh/deploy_key", "a private SSH key"),
            ("~/.ssh", "a private SSH key"),
            ("$env:USERPROFILE\\.aws\\credentials", "AWS credentials"),
            ("~/.aws", "AWS credentials"),
            (
                "~/.config/gcloud/application_default_credentials.json",
                "Google Cloud credentials",
            ),
            ("${HOME}/.docker/config.json", "Docker credentials"),
            ("/root/.netrc", "passwords in .netrc"),
            ("~/.kube/config", "Kubernetes credentials"),
            ("~/.bash_history", "the history of a shell"),
            ("/proc/self/environ", "the environment"),
            ("/etc/shadow", "passwords of the system"),
            ("~/.claude/projects/**/*.jsonl", "the sessions of an agent"),
        ] {
            assert_eq!(
                find_store(path).map(|at| STORES[at].name),
                Some(name),
                "{path}"
            );
        }
        for path in [
            "~/.ssh/id_rsa.pub",
            "~/.ssh/known_hosts",
            "~/.ssh/config",
            "notes/today.md",
            "docs/ssh.md",
            "https://kubernetes.io/docs",
            ".env.example",
            "src/id_rsa_test.go",
            "config.json",
            "/etc/hosts",
            "~/.claude/skills/a/SKILL.md",
        ] {
            assert_eq!(find_store(path).map(|at| STORES[at].name), None, "{path}");
        }
    }
}

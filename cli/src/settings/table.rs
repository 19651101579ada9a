//! The table of all settings: the environment variable of each, the type of its value and its
//! default.

use vault_sources::{DEFAULT_CLAWHUB, DEFAULT_NPM};

/// The type of a setting's value. Loading rejects values of another type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ValueKind {
    Text,
    /// Text that is masked when settings are displayed.
    Secret,
    Number,
    Boolean,
    /// Comma-separated text, or an array of strings in a file.
    List,
    OneOf(&'static [&'static str]),
}

/// A setting, under the name of its environment variable.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) kind: ValueKind,
    /// The default as `vault config list` shows it: a value, or words that describe it; empty if
    /// there is none. The code that reads the setting applies the default.
    pub(super) default: &'static str,
}

const fn variable(name: &'static str, kind: ValueKind, default: &'static str) -> Variable {
    Variable {
        name,
        kind,
        default,
    }
}

const DEFAULT_BIND: &str = "127.0.0.1, or 0.0.0.0 for a public URL elsewhere";
const DEFAULT_INDEX: &str = "index.db under the storage path";
const DEFAULT_PROVIDER_NAME: &str = "host of VAULT_OIDC_ISSUER";
const DEFAULT_SIGN_IN: &str = "password, or both with a provider";
/// The library that `vault serve` uses, in place of the `~/.vault` that [`TABLE`] gives for the
/// other commands.
pub const SERVED_LIBRARY: &str = "library beside the database";
const LOG_LEVELS: &[&str] = &["debug", "info", "warn", "error"];
const MCP_WRITES: &[&str] = &["draft", "sign"];
const TOOL_NAMES: &[&str] = &["plain", "dotted"];

/// Every variable that `vault` reads except `PORT`, which platforms set.
pub(super) const TABLE: &[Variable] = &[
    variable("VAULT_ADMIN_EMAIL", ValueKind::Text, ""),
    variable("VAULT_ADMIN_PASSWORD", ValueKind::Secret, ""),
    variable("VAULT_ALLOWED_HOSTS", ValueKind::List, ""),
    variable("VAULT_ALLOWED_ORIGINS", ValueKind::List, ""),
    variable("VAULT_BILLING_URL", ValueKind::Text, ""),
    variable("VAULT_BIND", ValueKind::Text, DEFAULT_BIND),
    variable("VAULT_CLAWHUB_URL", ValueKind::Text, DEFAULT_CLAWHUB),
    variable("VAULT_DATABASE_URL", ValueKind::Text, "./data/vault.db"),
    variable("VAULT_DB_PATH", ValueKind::Text, DEFAULT_INDEX),
    variable("VAULT_FIND_SITES", ValueKind::List, ""),
    variable("VAULT_HTTP_PORT", ValueKind::Number, ""),
    variable("VAULT_KEY_PASSPHRASE_FILE", ValueKind::Text, ""),
    variable("VAULT_LIMIT_BUNDLES", ValueKind::Number, "30000"),
    variable("VAULT_LIMIT_CATALOG", ValueKind::Number, "120"),
    variable("VAULT_LIMIT_ENROL_SLUG", ValueKind::Number, "120"),
    variable("VAULT_LIMIT_ENROL_SOURCE", ValueKind::Number, "600"),
    variable("VAULT_LIMIT_GRANT", ValueKind::Number, "600"),
    variable("VAULT_LIMIT_NAMESPACE", ValueKind::Number, "3000"),
    variable("VAULT_LIMIT_NAMESPACE_EXPORTS", ValueKind::Number, "600"),
    variable("VAULT_LIMIT_NAMESPACE_GATE", ValueKind::Number, "256"),
    variable("VAULT_LIMIT_NAMESPACE_LOG", ValueKind::Number, "20000"),
    variable("VAULT_LIMIT_NAMESPACE_READS", ValueKind::Number, "120000"),
    variable("VAULT_LIMIT_NAMESPACE_WRITES", ValueKind::Number, "600"),
    variable("VAULT_LIMIT_PAYMENT", ValueKind::Number, "20"),
    variable("VAULT_LIMIT_REFRESH", ValueKind::Number, "10"),
    variable("VAULT_LIMIT_REGISTER", ValueKind::Number, "200"),
    variable("VAULT_LIMIT_REGISTER_UNUSED", ValueKind::Number, "50"),
    variable("VAULT_LIMIT_SIGN_IN", ValueKind::Number, "30"),
    variable("VAULT_LIMIT_SIGN_IN_ACCOUNT", ValueKind::Number, "20"),
    variable("VAULT_LIMIT_TOKEN", ValueKind::Number, "60"),
    variable("VAULT_LOG_LEVEL", ValueKind::OneOf(LOG_LEVELS), "info"),
    variable("VAULT_MAIL_FROM", ValueKind::Text, ""),
    variable("VAULT_MCP_WRITES", ValueKind::OneOf(MCP_WRITES), "sign"),
    variable(
        "VAULT_MEMBER_WRITES",
        ValueKind::OneOf(&["draft", "sign"]),
        "draft",
    ),
    variable("VAULT_MODE", ValueKind::OneOf(&["local", "remote"]), ""),
    variable("VAULT_NPM_REGISTRY_URL", ValueKind::Text, DEFAULT_NPM),
    variable("VAULT_OIDC_CLIENT_ID", ValueKind::Text, ""),
    variable("VAULT_OIDC_CLIENT_SECRET", ValueKind::Secret, ""),
    variable("VAULT_OIDC_ISSUER", ValueKind::Text, ""),
    variable("VAULT_OIDC_NAME", ValueKind::Text, DEFAULT_PROVIDER_NAME),
    variable("VAULT_PAYMENT_GRACE_DAYS", ValueKind::Number, "7"),
    variable(
        "VAULT_PAYMENT_MODE",
        ValueKind::OneOf(&["live", "test"]),
        "live",
    ),
    variable("VAULT_PAYMENT_SECRETS", ValueKind::Secret, ""),
    variable("VAULT_PLANS", ValueKind::Text, ""),
    variable("VAULT_PORT", ValueKind::Number, "8080"),
    variable("VAULT_PUBLIC_URL", ValueKind::Text, ""),
    variable("VAULT_REGISTRY_URL", ValueKind::Text, ""),
    variable("VAULT_SEARCH_MODE", ValueKind::OneOf(&["text"]), "text"),
    variable(
        "VAULT_SECOND_FACTOR",
        ValueKind::OneOf(&["optional", "owners"]),
        "optional",
    ),
    variable("VAULT_SECURITY_STRICT", ValueKind::Boolean, "true"),
    variable(
        "VAULT_SIGN_IN",
        ValueKind::OneOf(&["password", "oidc", "both"]),
        DEFAULT_SIGN_IN,
    ),
    variable(
        "VAULT_SIGN_UP",
        ValueKind::OneOf(&["invited", "open"]),
        "invited",
    ),
    variable("VAULT_SIGN_UP_VAULTS", ValueKind::OneOf(&["on", "off"]), ""),
    variable("VAULT_SMTP_URL", ValueKind::Secret, ""),
    variable("VAULT_SOURCES_ALLOW_LOOPBACK", ValueKind::Boolean, "false"),
    variable("VAULT_SOURCE_TOKENS", ValueKind::Secret, ""),
    variable("VAULT_STORAGE_PATH", ValueKind::Text, "~/.vault"),
    variable("VAULT_TOKEN_TTL", ValueKind::Number, "900"),
    variable("VAULT_TOOL_NAMES", ValueKind::OneOf(TOOL_NAMES), "plain"),
    variable("VAULT_TRUSTED_PROXIES", ValueKind::List, ""),
    variable("VAULT_WEBHOOK_PORTS", ValueKind::List, "443,8443"),
];

/// Variables that are no settings but are known, so that no warning names them. The installer, the
/// smoke test and the actions of skills read them.
pub(super) const OTHER_VARIABLES: [&str; 9] = [
    "VAULT_CALLED_FROM",
    "VAULT_INSTALL_DIR",
    "VAULT_INSTALL_FROM",
    "VAULT_INSTALL_SHA256",
    "VAULT_NO_BOOTSTRAP",
    "VAULT_NO_SETUP",
    "VAULT_OUTPUT",
    "VAULT_REMOTE_URL",
    "VAULT_YES",
];

pub(super) fn variable_named(name: &str) -> Option<&'static Variable> {
    TABLE.iter().find(|variable| variable.name == name)
}

pub(super) fn variable_names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|variable| variable.name)
}

/// Returns the key of a setting in a file: the variable's name in lower case, without `VAULT_`.
pub(super) fn file_name(variable: &str) -> String {
    variable.trim_start_matches("VAULT_").to_lowercase()
}

/// Parses a boolean: `true`, `1`, `false` or `0`.
pub(super) fn is_true(value: &str) -> Option<bool> {
    match value {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// The replacement for a secret. It does not reveal the length.
pub(super) const MASK: &str = "********";

/// Returns a value for display, with secrets masked.
pub(super) fn mask_value(kind: ValueKind, value: &str) -> String {
    match kind {
        ValueKind::Secret => MASK.to_owned(),
        // A database address may contain a password. Text that looks like such an address but
        // cannot be parsed is masked completely.
        ValueKind::Text if value.contains('@') && value.contains("://") => {
            let Ok(mut url) = url::Url::parse(value) else {
                return MASK.to_owned();
            };
            if url.password().is_some() && url.set_password(Some(MASK)).is_err() {
                return MASK.to_owned();
            }
            // PostgreSQL also accepts the password as a parameter of the address.
            let mut pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            let passwords = pairs.iter_mut().filter(|(name, _)| name == "password");
            if passwords.map(|(_, text)| MASK.clone_into(text)).count() > 0 {
                url.query_pairs_mut().clear().extend_pairs(pairs);
            }
            url.to_string()
        }
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use vault_gate::document::is_reserved_variable;

    use super::*;

    /// The rows of the table in `docs/serve.md`: names, and defaults as written there.
    #[test]
    fn the_page_about_serve_lists_every_variable_with_its_default() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/serve.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = page.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| `VAULT_")?.split(" | ");
            let name = cells.next()?.trim_end_matches('`');
            Some((format!("VAULT_{name}"), cells.next()?.replace('`', "")))
        });
        let mut listed: Vec<_> = rows.collect();
        listed.sort();
        let known = TABLE.iter().map(|variable| {
            let default = match (variable.name, variable.default) {
                ("VAULT_STORAGE_PATH", _) => SERVED_LIBRARY,
                (_, "") => "not set",
                (_, default) => default,
            };
            (variable.name.to_owned(), default.to_owned())
        });
        let mut known: Vec<_> = known.collect();
        known.sort();
        assert_eq!(listed, known);
    }

    #[test]
    fn every_setting_is_a_reserved_variable() {
        assert!(variable_names().all(is_reserved_variable));
    }
}

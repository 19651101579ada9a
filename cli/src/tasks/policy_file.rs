//! `policy.toml`, the policy of the vault: which sources may be fetched, and which skills callers
//! are granted. This module reads, compiles and queries it; failures show the faulty line.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use vault_library::{
    Capabilities, POLICY_FILE, ResolveError, ResolveInput, Vault, read_policy, read_policy_at,
    resolve_capabilities,
};
use vault_policy::{self as policy, Asker, CompiledPolicy, Input, MAX_BYTES, Policy, PolicyError};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, Place},
    output::{clean, excerpt::marked_line, nearest_name},
};

/// Returns the path of `policy.toml` in the vault's folder, even if the file does not exist.
pub fn own_path(context: &Context) -> Result<PathBuf, Failure> {
    Ok(context.vault_paths()?.root.join(POLICY_FILE))
}

/// Reads the policy in force: the last approved version. Before the vault exists, `policy.toml`
/// counts as it is written.
pub fn own_policy(context: &Context, vault: Option<&Vault>) -> Result<Option<Policy>, Failure> {
    match vault {
        Some(vault) => {
            let path = own_path(context)?;
            read_policy(vault).map_err(|error| resolve_failure(error, &path))
        }
        None => written_policy(context),
    }
}

/// Reads `policy.toml` as it is written, approved or not.
pub fn written_policy(context: &Context) -> Result<Option<Policy>, Failure> {
    let path = own_path(context)?;
    read_policy_at(&context.vault_paths()?.root).map_err(|error| resolve_failure(error, &path))
}

/// Reads and compiles the policy that is in force.
pub fn own_compiled(context: &Context, vault: Option<&Vault>) -> Result<CompiledPolicy, Failure> {
    compile_policy(own_policy(context, vault)?)
}

/// Compiles a policy. `None` compiles to a policy that grants nothing.
pub fn compile_policy(policy: Option<Policy>) -> Result<CompiledPolicy, Failure> {
    policy.map_or_else(
        || Ok(CompiledPolicy::absent()),
        // Parsing a policy has already compiled it, so this does not fail.
        |policy| {
            CompiledPolicy::new(policy)
                .map_err(|error| policy_failure(&error, Path::new(POLICY_FILE), None))
        },
    )
}

/// Suggests a correction for a misspelt name. The message encloses names in backquotes: first the
/// wrong one, then the allowed ones.
fn suggest_correction(message: &str) -> Option<String> {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (wrong, offered) = names.split_first()?;
    let near = nearest_name(wrong, offered.iter().copied())?;
    (near != *wrong).then(|| format!("did you mean `{near}`?"))
}

/// Reads and parses a policy file that the user named.
pub fn read_file(path: &Path) -> Result<Policy, Failure> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        // Read one byte more than the limit, so that a longer file is rejected instead of cut.
        .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| Failure::io("reading", path, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| not_text(path))?;
    Policy::from_toml(&text).map_err(|error| policy_failure(&error, path, Some(&text)))
}

fn not_text(path: &Path) -> Failure {
    fail!(PolicySchema, "{} is not UTF-8", path.display())
}

/// Converts an error in the vault's own policy, with the wrong line.
fn resolve_failure(error: ResolveError, path: &Path) -> Failure {
    match error {
        ResolveError::Vault(error) => error.into(),
        ResolveError::NotText => not_text(path),
        ResolveError::Policy(error) => {
            // The text is only needed for the excerpt, so a failure to read it is harmless.
            policy_failure(&error, path, std::fs::read_to_string(path).ok().as_deref())
        }
    }
}

fn policy_failure(error: &PolicyError, path: &Path, text: Option<&str>) -> Failure {
    let code = ErrorCode::parse(error.word()).unwrap_or(ErrorCode::PolicySchema);
    let failure = Failure::new(code, clean(error.message(), 1000))
        .hint_if(suggest_correction(error.message()));
    let mut place = Place::new(path, None);
    let Some(at) = error.position() else {
        return failure.at(place);
    };
    (place.line, place.column) = (Some(at.line), Some(at.column));
    let line = text.and_then(|text| marked_line(text, at.line, at.column));
    failure.at(place).details(line)
}

/// A question to the policy: who asks, from where, and for which skills.
#[derive(Clone, Copy, Debug)]
pub struct CallerQuery<'a> {
    /// The id of the caller, as callers are named in the policy.
    pub caller: &'a str,
    /// The platform that the caller uses, such as a chat service.
    pub platform: &'a str,
    /// The channel on the platform, if there is one.
    pub channel: Option<&'a str>,
    /// The profile that an owner assigned to the caller.
    pub profile: Option<&'a str>,
    /// The text to search the granted skills for.
    pub query: &'a str,
}

/// Returns what the policy grants to a caller. Without a vault there are no skills to grant.
pub fn caller_capabilities(
    vault: Option<&Vault>,
    policy: &CompiledPolicy,
    caller_query: CallerQuery<'_>,
) -> Result<Capabilities, Failure> {
    let CallerQuery {
        caller,
        platform,
        channel,
        profile: bound_profile,
        query,
    } = caller_query;
    let (callers, query) = (&[caller][..], Some(query));
    let Some(vault) = vault else {
        let asker = Asker {
            callers,
            bound_profile,
            platform,
            channel,
        };
        let (catalog, skills) = (None, &[][..]);
        return Ok(policy::resolve_capabilities(&Input {
            policy,
            catalog,
            asker,
            query,
            skills,
        }));
    };
    let policy = Some(policy);
    let input = ResolveInput {
        vault,
        policy,
        callers,
        bound_profile,
        platform,
        channel,
        query,
    };
    resolve_capabilities(&input).map_err(|error| match error {
        ResolveError::Vault(error) => error.into(),
        // The policy has already been parsed, so only the vault can fail.
        other => Failure::new(ErrorCode::PolicySchema, other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_gets_the_name_that_was_meant() {
        for (message, hint) in [
            (
                "unknown field `profles`, expected one of `profiles`, `groups`",
                Some("did you mean `profiles`?"),
            ),
            (
                "there is no group `realease` (defined: `release`, `work`)",
                Some("did you mean `release`?"),
            ),
            ("there is no group `x` (defined: `release`, `work`)", None),
            ("`(?=deploy)` cannot be used as an expression", None),
            ("plain", None),
        ] {
            assert_eq!(suggest_correction(message).as_deref(), hint, "{message}");
        }
    }
}

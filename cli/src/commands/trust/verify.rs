//! `vault verify`: checks that installed skills, archives and sites are exactly what was signed.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use vault_library::{
    Damage, Vault,
    export::{self, Fault, Form, Verified, VerifyError},
    integrity::{self, Checked, KnownVault},
    run,
};
use vault_skill::{
    keys::PublicKey,
    manifest::Manifest,
    name::SkillName,
    root::{KeyFingerprint, VaultFingerprint},
};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, chain},
    key_changes,
    lookup::{self, Target},
    output::{BOLD, DIM, Report, TICK, count, origin},
};

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Without a name: every installed skill, from its bytes. With a path: a folder, zip, tar.gz or bundle against its signed manifest
(NAME.manifest.json beside it, as `vault export` writes it), or a whole exported site. An export carries the keys of its vault;
they count for the vaults that this machine knows, and for the one of --expect-key. Nothing is fetched, with --offline or
without. Exit 6 when something is wrong, 3 when it was signed by a key that no longer publishes for its vault.

Examples:
  vault verify
  vault verify code-review
  vault verify ./code-review.zip --expect-key vlt:2abc-…/2
  vault verify ./site

Since 0.5.0 (stable).")]
pub struct Arguments {
    /// An installed skill, or something that was exported; `./name` is always a path
    #[arg(value_name = "NAME|PATH")]
    what: Option<String>,
    /// The vault that it must be from, as `vault key show` prints its fingerprint
    #[arg(long, value_name = "FINGERPRINT")]
    expect_key: Option<VaultFingerprint>,
    /// The signed manifest, where it does not lie beside the path
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
}

/// Verifies the target, or every installed skill if none is given.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let known = vault
        .as_ref()
        .map_or_else(|| Ok(Vec::new()), integrity::known_vaults)?;
    let expected = arguments.expect_key.as_ref();
    let Some(what) = &arguments.what else {
        return verify_all(vault.as_ref(), expected);
    };
    match (lookup::target(vault.as_ref(), what)?, &vault) {
        (Target::Installed(name), Some(vault)) => verify_installed(vault, &name, &known, expected),
        (Target::Installed(_), None) => Err(fail!(SkillNotFound, "nothing is installed")),
        (Target::Path(path), _) => {
            let manifest = arguments.manifest.as_deref();
            exported(context, &path, manifest, &known, expected)
        }
    }
}

fn verify_all(
    vault: Option<&Vault>,
    expected: Option<&VaultFingerprint>,
) -> Result<Report, Failure> {
    let nothing = "Nothing is installed.";
    let Some(vault) = vault else {
        return Ok(Report::new(json!({ "skills": [], "wrong": 0 }), nothing));
    };
    if expected.is_some() {
        return Err(fail!(Usage, "--expect-key goes with a name or a path")
            .hint("vault verify <name> --expect-key <fingerprint>"));
    }
    let report = integrity::check(vault)?;
    let mut skills = Vec::new();
    let mut wrong = Vec::new();
    let mut code = ErrorCode::SkillUnreadable;
    for Checked {
        name,
        origin: from,
        bundle,
        version,
        damage,
        ..
    } in &report.skills
    {
        let problem = damage.as_ref().map(|damage| chain(damage));
        if let Some(problem) = &problem {
            wrong.push(format!(
                "{BOLD}{name}{BOLD:#}  {problem} ({})",
                origin::whose(from)
            ));
        }
        if damage
            .as_ref()
            .is_some_and(|damage| !matches!(damage, Damage::Unreadable(_)))
        {
            code = ErrorCode::SkillDamaged;
        }
        skills.push(json!({
            "name": name, "origin": origin::origin(from), "bundle_hash": bundle,
            "version": version, "ok": damage.is_none(), "damage": problem,
        }));
    }
    let total = count(skills.len(), "skill");
    let is_one = skills.len() == 1;
    let data = json!({ "skills": skills, "wrong": wrong.len(), "strange": report.strange });
    if wrong.is_empty() {
        let verb = if is_one { "is" } else { "are" };
        let text = match report.skills[..] {
            [] => nothing.to_owned(),
            _ => format!("{TICK} {total} {verb} exactly as signed"),
        };
        return Ok(Report::new(data, text));
    }
    let verb = if wrong.len() == 1 { "is" } else { "are" };
    let message = format!("{} of {total} {verb} not what was signed", wrong.len());
    Err(Failure::new(code, message)
        .details(wrong)
        .data(data)
        .hint("add or pull it again: vault add <folder>, vault cloud pull"))
}

fn verify_installed(
    vault: &Vault,
    name: &SkillName,
    known: &[KnownVault],
    expected: Option<&VaultFingerprint>,
) -> Result<Report, Failure> {
    let found = run::inspect(vault, name).map_err(|error| match error {
        run::RunError::Damaged { skill, damage } => {
            let mut failure = Failure::damaged(skill.as_str(), &damage);
            if !matches!(damage, Damage::Unreadable(_)) {
                failure.code = ErrorCode::SkillDamaged.into();
            }
            failure
        }
        other => lookup::suggest(vault, other),
    })?;
    let from = known.iter().find(|known| known.origin == found.origin);
    if let Some(expected) = expected
        && from.is_none_or(|from| from.trust.chain().version_of(expected).is_none())
    {
        let whose = origin::whose(&found.origin);
        return Err(fail!(
            VaultChanged,
            "{name} ({whose}) is not from the vault {expected}"
        ));
    }
    let manifest = &found.examined.manifest;
    let data = json!({
        "name": found.name, "origin": origin::origin(&found.origin), "version": manifest.version,
        "bundle_hash": found.bundle, "signer": origin::signer(&found.signer),
        "files": manifest.files.len(), "ok": true,
    });
    let text = good(manifest, &found.signer, &origin::whose(&found.origin));
    Ok(Report::new(data, text))
}

fn good(manifest: &Manifest, signer: &PublicKey, whose: &str) -> String {
    let (name, version) = (&manifest.name, manifest.version);
    let (files, signer) = (
        count(manifest.files.len(), "file"),
        KeyFingerprint::publisher(signer),
    );
    format!(
        "{TICK} {BOLD}{name}{BOLD:#}  {DIM}version {version}, {files}, signed by {signer} ({whose}){DIM:#}"
    )
}

fn exported(
    context: &Context,
    path: &Path,
    manifest: Option<&Path>,
    known: &[KnownVault],
    expected: Option<&VaultFingerprint>,
) -> Result<Report, Failure> {
    let verified =
        export::verify(path, manifest, known, expected).map_err(|error| refused(&error))?;
    let mut skills = Vec::new();
    let mut lines = Vec::new();
    for Verified {
        path,
        form,
        manifest,
        signer,
        fingerprint,
        warnings,
    } in &verified
    {
        let from = known
            .iter()
            .find(|known| *known.trust.roots().vault_id().as_str() == *manifest.vault_id.as_str())
            .map(|known| &known.origin);
        let whose = from.map_or_else(|| format!("the vault {fingerprint}"), origin::whose);
        key_changes::warn_about_roots(context, &whose, warnings);
        lines.push(good(manifest, signer, &whose));
        let form = match form {
            Form::Folder => "folder",
            Form::Archive => "archive",
            Form::Bundle => "bundle",
            Form::Site => "site",
        };
        skills.push(json!({
            "path": path, "form": form, "name": manifest.name, "version": manifest.version,
            "vault_id": manifest.vault_id, "vault_fingerprint": fingerprint,
            "provenance": manifest.provenance.identifier, "files": manifest.files.len(),
            "signer": origin::signer(signer), "known_as": from.map(origin::origin),
        }));
    }
    if lines.is_empty() {
        lines.push("There is no skill in it.".to_owned());
    }
    Ok(Report::new(
        json!({ "path": path, "skills": skills }),
        lines.join("\n"),
    ))
}

fn refused(error: &VerifyError) -> Failure {
    let message = chain(error);
    if !error.is_wrong() {
        return fail!(NotVerified, "{message}");
    }
    match error {
        VerifyError::Unsigned { .. } => fail!(NotSigned, "{message}")
            .hint("--manifest <file> names it; `vault export` writes it beside what it exports"),
        VerifyError::Wrong {
            fault: Fault::Roots(cause),
            ..
        } => {
            let mut failure = Failure::from(cause);
            failure.message = message;
            failure
        }
        _ => match error.word().and_then(ErrorCode::parse) {
            Some(code) => Failure::new(code, message),
            None => fail!(NotAsSigned, "{message}"),
        }
        .hint("do not use it; get it again from its owner"),
    }
}

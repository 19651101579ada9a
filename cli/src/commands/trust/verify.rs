//! `vault verify`: checks that installed skills, archives and sites are exactly what was signed.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use vault_library::{
    Damage, Vault,
    export::{self, Form, Verified, VerifyError},
    integrity::{self, Checked, Signer},
    run,
};
use vault_skill::{keys::PublicKey, manifest::Manifest, name::SkillName};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, chain},
    lookup::{self, Target},
    output::{BOLD, DIM, HINT, Report, TICK, clean, count, origin},
};

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Without a name: every installed skill, from its bytes. With a path: a folder, zip, tar.gz or bundle against its signed manifest
(NAME.manifest.json beside it, as `vault export` writes it), or a whole exported site. Keys that count are this vault's, those
that its links pinned, and the one of --key. Nothing is fetched, with --offline or without. Exit 6 when something is wrong.

Examples:
  vault verify
  vault verify code-review
  vault verify ./code-review.zip --key 3q2-7w…
  vault verify ./site

Since 0.5.0 (stable).")]
pub struct Arguments {
    /// An installed skill, or something that was exported; `./name` is always a path
    #[arg(value_name = "NAME|PATH")]
    what: Option<String>,
    /// A public key that counts, as `vault key show` prints it, or the fingerprint of a known one
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The signed manifest, where it does not lie beside the path
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
}

/// Verifies the target, or every installed skill if none is given.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let known = vault
        .as_ref()
        .map_or_else(|| Ok(Vec::new()), integrity::signers)?;
    let key = arguments
        .key
        .as_deref()
        .map(|text| key(text, &known))
        .transpose()?;
    let Some(what) = &arguments.what else {
        return verify_all(vault.as_ref(), key.as_ref());
    };
    match (lookup::target(vault.as_ref(), what)?, &vault) {
        (Target::Installed(name), Some(vault)) => verify_installed(vault, &name, key.as_ref()),
        (Target::Installed(_), None) => Err(fail!(SkillNotFound, "nothing is installed")),
        (Target::Path(path), _) => exported(&path, arguments.manifest.as_deref(), &known, key),
    }
}

fn key(text: &str, known: &[Signer]) -> Result<PublicKey, Failure> {
    if let Ok(key) = text.parse() {
        return Ok(key);
    }
    let named = |signer: &&Signer| signer.key.fingerprint().eq_ignore_ascii_case(text);
    known
        .iter()
        .find(named)
        .map(|signer| signer.key)
        .ok_or_else(|| {
            let text = clean(text, 80);
            fail!(
                KeyInvalid,
                "`{text}` is neither a public key nor the fingerprint of one that is known here"
            )
            .hint("the owner's `vault key show` prints the 43 characters of the key")
        })
}

fn verify_all(vault: Option<&Vault>, key: Option<&PublicKey>) -> Result<Report, Failure> {
    let nothing = "Nothing is installed.";
    let Some(vault) = vault else {
        return Ok(Report::new(json!({ "skills": [], "wrong": 0 }), nothing));
    };
    if key.is_some() {
        return Err(fail!(Usage, "--key goes with a name or a path")
            .hint("vault verify <name> --key <key>"));
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
    key: Option<&PublicKey>,
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
    if key.is_some_and(|key| *key != found.signer) {
        let signer = found.signer.fingerprint();
        return Err(fail!(
            SignerOther,
            "{name} is signed by {signer}, not by the key that was given"
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
    let (files, signer) = (count(manifest.files.len(), "file"), signer.fingerprint());
    format!(
        "{TICK} {BOLD}{name}{BOLD:#}  {DIM}version {version}, {files}, signed by {signer} ({whose}){DIM:#}"
    )
}

fn exported(
    path: &Path,
    manifest: Option<&Path>,
    known: &[Signer],
    key: Option<PublicKey>,
) -> Result<Report, Failure> {
    // If `--key` is given, accept that key only.
    let (known, extra) = match key {
        Some(key) => (&[][..], vec![key]),
        None => (known, Vec::new()),
    };
    let verified =
        export::verify(path, manifest, known, &extra).map_err(|error| refused(&error))?;
    let mut skills = Vec::new();
    let mut lines = Vec::new();
    for Verified {
        path,
        form,
        manifest,
        signer: key,
        ..
    } in &verified
    {
        let known_as = known
            .iter()
            .find(|known| known.key == *key)
            .map(|known| &known.origin);
        let whose = known_as.map_or_else(|| "the key that was given".to_owned(), origin::whose);
        lines.push(good(manifest, key, &whose));
        let form = match form {
            Form::Folder => "folder",
            Form::Archive => "archive",
            Form::Bundle => "bundle",
            Form::Site => "site",
        };
        skills.push(json!({
            "path": path, "form": form, "name": manifest.name, "version": manifest.version,
            "vault_id": manifest.vault_id, "provenance": manifest.provenance.identifier,
            "files": manifest.files.len(), "signer": origin::signer(key),
            "known_as": known_as.map(origin::origin),
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
    if error.is_unknown_signer() {
        return fail!(SignerUnknown, "{message}").hint(format!(
            "if you trust its owner: {HINT}--key <key>{HINT:#} with the key that their `vault key show` prints"
        ));
    }
    match error {
        VerifyError::Unsigned { .. } => fail!(NotSigned, "{message}")
            .hint("--manifest <file> names it; `vault export` writes it beside what it exports"),
        _ => fail!(NotAsSigned, "{message}").hint("do not use it; get it again from its owner"),
    }
}

//! `vault verify`: checks that installed skills, archives and sites are exactly what was signed.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use vault_library::{
    Damage, Vault,
    export::{self, Form, Verified, VerifyError},
    integrity::{self, Checked, Signer},
    run,
};
use vault_skill::{keys::PublicKey, name::SkillName};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, chain},
    lookup::{self, Target},
    output::{BOLD, DIM, GOOD, HINT, Report, clean, count, origin, paint},
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
        return all(vault.as_ref(), key.as_ref());
    };
    match (lookup::target(vault.as_ref(), what)?, &vault) {
        (Target::Installed(name), Some(vault)) => one(vault, &name, key.as_ref()),
        (Target::Installed(_), None) => Err(fail!(SkillNotFound, "nothing is installed")),
        (Target::Path(path), _) => exported(&path, arguments.manifest.as_deref(), &known, key),
    }
}

fn key(text: &str, known: &[Signer]) -> Result<PublicKey, Failure> {
    if let Ok(key) = text.parse() {
        return Ok(key);
    }
    known
        .iter()
        .find(|signer| signer.key.fingerprint().eq_ignore_ascii_case(text))
        .map(|signer| signer.key)
        .ok_or_else(|| {
            fail!(
                KeyInvalid,
                "`{}` is neither a public key nor the fingerprint of one that is known here",
                clean(text, 80)
            )
            .hint("the owner's `vault key show` prints the 43 characters of the key")
        })
}

fn all(vault: Option<&Vault>, key: Option<&PublicKey>) -> Result<Report, Failure> {
    let Some(vault) = vault else {
        return Ok(Report::new(
            json!({ "skills": [], "wrong": 0 }),
            "Nothing is installed.",
        ));
    };
    if key.is_some() {
        return Err(fail!(Usage, "--key goes with a name or a path")
            .hint("vault verify <name> --key <key>"));
    }
    let report = integrity::check(vault)?;
    let data = json!({
        "skills": report.skills.iter().map(checked).collect::<Vec<_>>(),
        "wrong": report.skills.iter().filter(|skill| skill.damage.is_some()).count(),
        "strange": report.strange,
    });
    let wrong: Vec<String> = report
        .skills
        .iter()
        .filter_map(|skill| {
            let damage = skill.damage.as_ref()?;
            Some(format!(
                "{}  {} ({})",
                paint(BOLD, &skill.name),
                chain(damage),
                origin::whose(&skill.origin)
            ))
        })
        .collect();
    if wrong.is_empty() {
        let text = match report.skills.len() {
            0 => "Nothing is installed.".to_owned(),
            1 => format!("{} 1 skill is exactly as signed", paint(GOOD, "✓")),
            many => format!(
                "{} {} are exactly as signed",
                paint(GOOD, "✓"),
                count(many as u64, "skill")
            ),
        };
        return Ok(Report::new(data, text));
    }
    let unreadable_only = report
        .skills
        .iter()
        .filter_map(|skill| skill.damage.as_ref())
        .all(|damage| matches!(damage, Damage::Unreadable(_)));
    Err(Failure::new(
        if unreadable_only {
            ErrorCode::SkillUnreadable
        } else {
            ErrorCode::SkillDamaged
        },
        format!(
            "{} of {} {} not what was signed",
            wrong.len(),
            count(report.skills.len() as u64, "skill"),
            if wrong.len() == 1 { "is" } else { "are" }
        ),
    )
    .details(wrong)
    .data(data)
    .hint("add or pull it again: vault add <folder>, vault cloud pull"))
}

fn checked(skill: &Checked) -> Value {
    json!({
        "name": skill.name,
        "origin": origin::origin(&skill.origin),
        "bundle_hash": skill.bundle,
        "version": skill.version,
        "ok": skill.damage.is_none(),
        "damage": skill.damage.as_ref().map(|damage| chain(damage)),
    })
}

fn one(vault: &Vault, name: &SkillName, key: Option<&PublicKey>) -> Result<Report, Failure> {
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
        return Err(fail!(
            SignerOther,
            "{name} is signed by {}, not by the key that was given",
            found.signer.fingerprint()
        ));
    }
    let manifest = &found.examined.manifest;
    let data = json!({
        "name": found.name,
        "origin": origin::origin(&found.origin),
        "version": manifest.version,
        "bundle_hash": found.bundle,
        "signer": origin::signer(&found.signer),
        "files": manifest.files.len(),
        "ok": true,
    });
    let text = good(
        name.as_str(),
        manifest.version,
        manifest.files.len(),
        &found.signer,
        &origin::whose(&found.origin),
    );
    Ok(Report::new(data, text))
}

fn good(name: &str, version: u64, files: usize, signer: &PublicKey, whose: &str) -> String {
    format!(
        "{} {}  {}",
        paint(GOOD, "✓"),
        paint(BOLD, name),
        paint(
            DIM,
            format_args!(
                "version {version}, {}, signed by {} ({whose})",
                count(files as u64, "file"),
                signer.fingerprint()
            )
        )
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
    let data: Vec<Value> = verified
        .iter()
        .map(|skill| verified_json(skill, known))
        .collect();
    let lines: Vec<String> = verified
        .iter()
        .map(|skill| {
            let whose = known.iter().find(|signer| signer.key == skill.signer);
            let whose = whose.map_or_else(
                || "the key that was given".to_owned(),
                |signer| origin::whose(&signer.origin),
            );
            let manifest = &skill.manifest;
            good(
                manifest.name.as_str(),
                manifest.version,
                manifest.files.len(),
                &skill.signer,
                &whose,
            )
        })
        .collect();
    let text = if lines.is_empty() {
        "There is no skill in it.".to_owned()
    } else {
        lines.join("\n")
    };
    Ok(Report::new(json!({ "path": path, "skills": data }), text))
}

fn verified_json(skill: &Verified, known: &[Signer]) -> Value {
    let signer = known.iter().find(|signer| signer.key == skill.signer);
    json!({
        "path": skill.path,
        "form": match skill.form {
            Form::Folder => "folder",
            Form::Archive => "archive",
            Form::Bundle => "bundle",
            Form::Site => "site",
        },
        "name": skill.manifest.name,
        "version": skill.manifest.version,
        "vault_id": skill.manifest.vault_id,
        "provenance": skill.manifest.provenance.identifier,
        "files": skill.manifest.files.len(),
        "signer": origin::signer(&skill.signer),
        "known_as": signer.map(|signer| origin::origin(&signer.origin)),
    })
}

fn refused(error: &VerifyError) -> Failure {
    let message = chain(error);
    let unknown = error.is_unknown_signer();
    if !error.is_wrong() {
        return Failure::new(ErrorCode::NotVerified, message);
    }
    let failure = |code: ErrorCode| Failure::new(code, message.clone());
    match error {
        _ if unknown => failure(ErrorCode::SignerUnknown).hint(format!(
            "if you trust its owner: {} with the key that their `vault key show` prints",
            paint(HINT, "--key <key>")
        )),
        VerifyError::Unsigned { .. } => failure(ErrorCode::NotSigned)
            .hint("--manifest <file> names it; `vault export` writes it beside what it exports"),
        _ => failure(ErrorCode::NotAsSigned).hint("do not use it; get it again from its owner"),
    }
}

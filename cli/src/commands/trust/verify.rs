//! `vault verify`: checks that installed skills, archives and sites are exactly what was signed.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use vault_format::{
    keys::PublicKey,
    manifest::{Manifest, ManifestError},
    name::SkillRef,
    root::{KeyFingerprint, SignerRefusal, VaultFingerprint},
};
use vault_library::{
    Damage, Origin, Vault,
    export::{self, Fault, Form, Verified, VerifyError},
    integrity::{self, Checked, KnownVault},
    run,
};

use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure, chain},
    key_changes,
    lookup::{self, Target},
    output::{BOLD, DIM, Report, TICK, Warning, clean, count, doctor, origin, shell_path},
};

/// The arguments of `vault verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without a name, verifies every installed skill. With a path, verifies a folder, zip, tar.gz or \
bundle against its signed manifest (NAME.manifest.json beside it, as `vault export` writes it), \
or a whole exported site. An export contains the keys of its vault; they count if this machine \
knows the vault, or if --expect-key names it. This command never uses the network.

Files that were not signed are an error, except metadata that operating systems create \
(.DS_Store, Thumbs.db, desktop.ini, ._*). If the only difference is a script that is no longer \
executable, that is a note and exit 0. Exit 6: something was modified or a signature is wrong; 3: \
the signing key may no longer publish for its vault, or releases of the vault need several \
publishers and no release that they signed lists the skill.

Examples:
  vault verify
  vault verify code-review
  vault verify ./code-review.zip --expect-key vlt:2abc-…/2
  vault verify ./code-review --fix-modes
  vault verify ./site")]
pub struct Arguments {
    /// An installed skill, or an exported file or folder (`./name` is always a path)
    #[arg(value_name = "NAME|PATH")]
    what: Option<String>,
    /// The fingerprint of the vault that must have signed it, from `vault key show`
    #[arg(long, value_name = "FINGERPRINT")]
    expect_key: Option<VaultFingerprint>,
    /// The signed manifest, if it is not beside the path
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Make scripts executable again that were executable when signed
    #[arg(long)]
    fix_modes: bool,
    /// Exit with 3 if a script is no longer executable
    #[arg(long, conflicts_with = "fix_modes")]
    strict_modes: bool,
}

/// Verifies the target, or every installed skill if none is given.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let known = vault
        .as_ref()
        .map_or_else(|| Ok(Vec::new()), integrity::known_vaults)?;
    let expected = arguments.expect_key.as_ref();
    let target = match &arguments.what {
        Some(what) => Some(lookup::target(vault.as_ref(), what)?),
        None => None,
    };
    if arguments.fix_modes && !matches!(target, Some(Target::Path(_))) {
        return Err(
            fail!(Usage, "--fix-modes needs a folder").hint("vault verify ./<folder> --fix-modes")
        );
    }
    match (target, &vault) {
        (None, vault) => verify_all(context, vault.as_ref(), expected),
        (Some(Target::Installed(name)), Some(vault)) => {
            verify_installed(vault, &name, &known, expected)
        }
        (Some(Target::Installed(_)), None) => Err(fail!(SkillNotFound, "nothing is installed")),
        (Some(Target::Path(path)), _) => exported(context, &path, arguments, &known),
    }
}

fn verify_all(
    context: &Context,
    vault: Option<&Vault>,
    expected: Option<&VaultFingerprint>,
) -> Result<Report, Failure> {
    let nothing = "Nothing is installed.";
    // Before anything else: a script must not take "nothing is installed" for "verified".
    if expected.is_some() {
        return Err(fail!(Usage, "--expect-key needs a name or a path")
            .hint("vault verify <name> --expect-key <fingerprint>"));
    }
    let Some(vault) = vault else {
        return Ok(Report::new(json!({ "skills": [], "wrong": 0 }), nothing));
    };
    let report = integrity::check(vault)?;
    for path in &report.strange {
        let text = format!(
            "{} does not belong to the vault and was not verified",
            clean(path, 200)
        );
        let warning = Warning::new("foreign_in_vault", text);
        context
            .ui
            .warn(warning.hint("move it elsewhere; vault doctor shows details"));
    }
    let mut wrong = Vec::new();
    let mut code = ErrorCode::SkillUnreadable;
    let (mut withheld, mut is_linked) = (0, false);
    let mut judge = |checked: &Checked, what: &str| {
        let Checked {
            name,
            qualified,
            bare,
            origin: from,
            bundle,
            version,
            damage,
            ..
        } = checked;
        let problem = damage.as_ref().map(|damage| chain(damage));
        if let Some(problem) = &problem {
            let whose = origin::whose(from);
            let shown = if *bare { name.as_str() } else { qualified };
            wrong.push(format!("{BOLD}{shown}{BOLD:#}{what}  {problem} ({whose})"));
        }
        match damage {
            None | Some(Damage::Unreadable(_)) => {}
            Some(damage) if damage.is_withheld() => {
                withheld += 1;
                is_linked |= matches!(from, Origin::Linked(_));
            }
            Some(_) => code = ErrorCode::SkillDamaged,
        }
        json!({
            "name": name, "origin": origin::origin(from), "bundle_hash": bundle,
            "version": version, "ok": damage.is_none(), "damage": problem,
        })
    };
    let skills: Vec<_> = report.skills.iter().map(|skill| judge(skill, "")).collect();
    // Agents read rendered variants in place of the skill.
    let variants = report.variants.iter();
    let variants: Vec<_> = variants
        .map(|variant| judge(variant, ", a variant"))
        .collect();
    let total = count(skills.len(), "skill");
    let is_one = skills.len() == 1;
    let checked = count(skills.len() + variants.len(), "skill");
    let data = json!({
        "skills": skills, "variants": variants, "wrong": wrong.len(), "strange": report.strange,
    });
    if wrong.is_empty() {
        let verb = if is_one { "is" } else { "are" };
        let text = match report.skills[..] {
            [] => nothing.to_owned(),
            _ => format!("{TICK} {total} {verb} exactly as signed"),
        };
        return Ok(Report::new(data, text));
    }
    let verb = if wrong.len() == 1 { "is" } else { "are" };
    if withheld == wrong.len() {
        let message = format!(
            "{withheld} of {checked} {verb} withheld: the key that signed {} is revoked",
            if withheld == 1 { "it" } else { "them" }
        );
        let failure = fail!(ReleaseAwaited, "{message}").details(wrong).data(data);
        return Err(failure.hint(doctor::withheld_hint(is_linked)));
    }
    let message = format!("{} of {checked} {verb} modified after signing", wrong.len());
    Err(Failure::new(code, message)
        .details(wrong)
        .data(data)
        .hint("vault doctor shows how to restore each of them"))
}

fn verify_installed(
    vault: &Vault,
    name: &SkillRef,
    known: &[KnownVault],
    expected: Option<&VaultFingerprint>,
) -> Result<Report, Failure> {
    let found = run::inspect(vault, name).map_err(|error| match error {
        run::RunError::Damaged { skill, damage } => {
            let mut failure = Failure::damaged(&skill.to_string(), &damage);
            if !matches!(damage, Damage::Unreadable(_)) {
                failure.code = ErrorCode::SkillDamaged.into();
            }
            failure
        }
        other => lookup::suggest(vault, other),
    })?;
    if let Some(damage) = found.examined.deviation() {
        let failure = Failure::damaged(&name.to_string(), &damage);
        return Err(failure.hint(format!("vault doctor {name} shows how to restore it")));
    }
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
    arguments: &Arguments,
    known: &[KnownVault],
) -> Result<Report, Failure> {
    let manifest = arguments.manifest.as_deref();
    let expected = arguments.expect_key.as_ref();
    let verified =
        export::verify(path, manifest, known, expected).map_err(|error| refused(&error))?;
    if verified.is_empty() {
        let path = path.display();
        return Err(fail!(
            NotVerified,
            "{path} contains no skill: there is nothing to verify"
        )
        .hint("name the folder that `vault export` wrote"));
    }
    for skill in &verified {
        note_modes(context, skill, arguments.fix_modes)?;
    }
    let mut skills = Vec::new();
    let mut lines = Vec::new();
    for Verified {
        path,
        form,
        manifest,
        signer,
        fingerprint,
        warnings,
        lost_modes,
        ..
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
            "lost_modes": lost_modes,
        }));
    }
    let lost = verified.iter().any(|skill| !skill.lost_modes.is_empty());
    let exit = if arguments.strict_modes && lost {
        Exit::Differences
    } else {
        Exit::Done
    };
    let data = json!({ "path": path, "skills": skills });
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}

/// Reports files that are not executable any more, and makes them so if asked.
fn note_modes(context: &Context, skill: &Verified, fix: bool) -> Result<(), Failure> {
    let shown = skill.path.display();
    if !fix {
        for file in &skill.lost_modes {
            let text = format!("{shown}: {file} was executable when signed and is not now");
            let hint = match skill.form {
                Form::Folder => format!(
                    "vault verify {} --fix-modes",
                    shell_path(skill.path.display())
                ),
                _ => "unpack it, then run vault verify <folder> --fix-modes".to_owned(),
            };
            context.ui.warn_with("mode_lost", text, hint);
        }
        return Ok(());
    }
    if !skill.fix_modes().map_err(|error| refused(&error))? {
        return Err(fail!(Usage, "{shown} is not a folder")
            .hint("unpack it, then run vault verify <folder> --fix-modes"));
    }
    for file in &skill.lost_modes {
        context.ui.note(format!("made {file} executable"));
    }
    Ok(())
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
        VerifyError::Wrong {
            fault: Fault::Manifest(ManifestError::Signer(SignerRefusal::NotReleased)),
            ..
        } => fail!(ReleaseAwaited, "{message}").hint(
            "ask its publishers to export it again after they have released it, and keep all exported files together",
        ),
        _ => match error.word().and_then(ErrorCode::parse) {
            Some(code) => Failure::new(code, message),
            None => fail!(NotAsSigned, "{message}"),
        }
        .hint("do not use it; get it again from its owner"),
    }
}

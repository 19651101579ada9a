//! `vault verify`: checks that installed skills, exported archives and exported sites are exactly
//! what was signed.

mod project;

use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use vault_format::{
    hash::Digest,
    keys::PublicKey,
    manifest::{Manifest, ManifestError},
    name::{SkillName, SkillRef},
    path::FilePath,
    provenance::ProvenanceId,
    root::{KeyFingerprint, SignerRefusal, VaultFingerprint, VaultId},
};
use vault_library::{
    Damage, Origin, Vault,
    export::{self, Fault, Form, Verified, VerifyError},
    integrity::{self, KnownVault, SkillCheck},
    run,
};

use crate::{
    context::Context,
    errors::{ErrorCode, Exit, Failure, message_chain},
    lookup::{self, Target},
    output::{
        BOLD, DIM, Report, TICK, clean, count, doctor, either,
        origin::{self, SigningKey},
        shell_path,
    },
    tasks::{key_changes, project_scope::ProjectScope},
};

/// The arguments of `vault verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Without a name, verifies every installed skill. With --project, verifies those of this project, \
which must also be the ones that its vault.lock names (exit 3). With a path, verifies a folder, zip, tar.gz or \
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
  vault verify --project
  vault verify ./code-review.zip --expect-key vlt:2abc-…/2
  vault verify ./code-review --fix-modes
  vault verify ./site")]
pub struct Arguments {
    /// An installed skill, or an exported file or folder (`./name` is always a path)
    #[arg(value_name = "NAME|PATH", conflicts_with = "is_project")]
    what: Option<String>,
    #[command(flatten)]
    scope: ProjectScope,
    /// The fingerprint of the vault that must have signed it, from `vault key show`
    #[arg(long, value_name = "FINGERPRINT", conflicts_with = "is_project")]
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

/// The output of `vault verify` for all installed skills.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub struct Verification {
    /// Every installed skill: own ones first, by name within each origin.
    skills: Vec<SkillIntegrity>,
    /// Variants that were rendered for single agents, each under the name of its skill.
    variants: Vec<SkillIntegrity>,
    /// The number of skills and variants that are not as signed.
    wrong: usize,
    /// Entries that do not belong to the vault, by their paths in its folder.
    strange: Vec<String>,
}

/// An installed skill, compared with what was signed.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SkillIntegrity {
    /// The name under which it is installed.
    name: SkillName,
    /// Whose it is: this vault's (`local`), a linked vault's (`link:<id>`) or a project's
    /// (`project:<path>`).
    origin: String,
    /// SHA-256 of the skill's bundle (its signed manifest and all its files).
    bundle_hash: Digest,
    /// Version number in the signed manifest; null if the manifest is not valid.
    version: Option<u64>,
    /// True if manifest and files are exactly as signed.
    ok: bool,
    /// The first difference; null if there is none.
    damage: Option<String>,
}

impl From<&SkillCheck> for SkillIntegrity {
    fn from(checked: &SkillCheck) -> Self {
        Self {
            name: checked.name.clone(),
            origin: origin::format_origin(&checked.origin),
            bundle_hash: checked.bundle,
            version: checked.version,
            ok: checked.damage.is_none(),
            damage: checked.damage.as_ref().map(|damage| message_chain(damage)),
        }
    }
}

/// An installed skill that is exactly as signed.
#[derive(Debug, JsonSchema, Serialize)]
pub struct IntactSkill {
    /// The name under which it is installed.
    name: SkillName,
    /// Whose it is: this vault's (`local`), a linked vault's (`link:<id>`) or a project's
    /// (`project:<path>`).
    origin: String,
    /// Version number in the skill's signed manifest.
    version: u64,
    /// SHA-256 of the skill's bundle (its signed manifest and all its files).
    bundle_hash: Digest,
    /// Key of the publisher who signed the skill.
    signer: SigningKey,
    /// Number of files that were compared.
    files: usize,
    /// Whether it is exactly as signed: always true.
    ok: bool,
}

/// The output of `vault verify` for a path.
#[derive(Debug, JsonSchema, Serialize)]
pub struct VerifiedExport {
    /// The path that was verified.
    path: PathBuf,
    /// Every skill found there.
    skills: Vec<VerifiedArtifact>,
}

/// A file or folder that is exactly as signed.
#[derive(Debug, JsonSchema, Serialize)]
pub struct VerifiedArtifact {
    /// Path of the file or folder that was verified.
    path: PathBuf,
    /// What was verified: `folder`, `archive`, `bundle` or `site`.
    form: Form,
    /// Name of the skill in its signed manifest.
    name: SkillName,
    /// Version number in the skill's signed manifest.
    version: u64,
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// The fingerprint of that vault.
    vault_fingerprint: VaultFingerprint,
    /// Source that the signed manifest records.
    provenance: ProvenanceId,
    /// Number of files that were compared.
    files: usize,
    /// Key of the publisher who signed the skill.
    signer: SigningKey,
    /// The origin that this machine knows the vault as: `local` or `link:<id>`; null if none.
    known_as: Option<String>,
    /// Files that were executable when signed and are not now.
    lost_modes: Vec<FilePath>,
}

/// Verifies the target, or every installed skill if no target is given.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if let Some(project) = arguments.scope.existing_project(context)? {
        return project::verify_project(context, &project);
    }
    let vault = context.existing_vault()?;
    let known_vaults = vault
        .as_ref()
        .map_or_else(|| Ok(Vec::new()), integrity::known_vaults)?;
    let expected = arguments.expect_key.as_ref();
    let target = match &arguments.what {
        Some(what) => Some(lookup::resolve_target(vault.as_ref(), what)?),
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
            verify_installed(vault, &name, &known_vaults, expected)
        }
        (Some(Target::Installed(_)), None) => Err(fail!(SkillNotFound, "nothing is installed")),
        (Some(Target::Path(path)), _) => verify_export(context, &path, arguments, &known_vaults),
    }
}

/// The text for a vault without skills.
const NOTHING: &str = "Nothing is installed.";

fn verify_all(
    context: &Context,
    vault: Option<&Vault>,
    expected: Option<&VaultFingerprint>,
) -> Result<Report, Failure> {
    // Reject the option first: a script must not mistake "nothing is installed" for a successful
    // check of the fingerprint.
    if expected.is_some() {
        return Err(fail!(Usage, "--expect-key needs a name or a path")
            .hint("vault verify <name> --expect-key <fingerprint>"));
    }
    let Some(vault) = vault else {
        return Ok(Report::view(Verification::default(), NOTHING));
    };
    let report = integrity::verify_all_installed(vault)?;
    for path in &report.strange {
        let path = clean(path, 200);
        let text = format!("{path} does not belong to the vault and was not verified");
        let hint = "move it elsewhere; vault doctor shows details";
        context.ui.warn_with("foreign_in_vault", text, hint);
    }
    let mut wrong = Vec::new();
    wrong.extend(
        report
            .skills
            .iter()
            .filter_map(|skill| wrong_line(skill, "")),
    );
    // Check rendered variants too, because agents read them in place of the skill.
    let variants = report.variants.iter();
    wrong.extend(variants.filter_map(|variant| wrong_line(variant, ", a variant")));
    let view = Verification {
        skills: report.skills.iter().map(SkillIntegrity::from).collect(),
        variants: report.variants.iter().map(SkillIntegrity::from).collect(),
        wrong: wrong.len(),
        strange: report.strange.clone(),
    };
    if !wrong.is_empty() {
        return Err(not_as_signed(&report, wrong).data(json!(view)));
    }
    let text = match view.skills.len() {
        0 => NOTHING.to_owned(),
        number => {
            let verb = either(number == 1, "is", "are");
            format!("{TICK} {} {verb} exactly as signed", count(number, "skill"))
        }
    };
    Ok(Report::view(view, text))
}

/// Formats a skill that is not as signed; `None` if it is. `kind` is added to its name.
fn wrong_line(checked: &SkillCheck, kind: &str) -> Option<String> {
    let problem = message_chain(checked.damage.as_ref()?);
    let whose = origin::describe_owner(&checked.origin);
    let name = either(checked.bare, checked.name.as_str(), &checked.qualified);
    Some(format!("{BOLD}{name}{BOLD:#}{kind}  {problem} ({whose})"))
}

/// Creates the failure for skills that are not as signed. `wrong` has a line for each of them.
fn not_as_signed(report: &integrity::VerifyReport, wrong: Vec<String>) -> Failure {
    let all = || report.skills.iter().chain(&report.variants);
    let damaged = || all().filter_map(|checked| Some((checked, checked.damage.as_ref()?)));
    let withheld = || damaged().filter(|(_, damage)| damage.is_withheld());
    let (number, checked) = (wrong.len(), count(all().count(), "skill"));
    let verb = either(number == 1, "is", "are");
    // Withheld skills are unchanged, but the key that signed them was revoked. They need other
    // advice than modified ones.
    if withheld().count() == number {
        let them = either(number == 1, "it", "them");
        let message =
            format!("{number} of {checked} {verb} withheld: the key that signed {them} is revoked");
        let is_linked = |checked: &SkillCheck| matches!(checked.origin, Origin::Linked(_));
        let is_linked = withheld().any(|(checked, _)| is_linked(checked));
        let failure = fail!(ReleaseAwaited, "{message}").details(wrong);
        return failure.hint(doctor::withheld_hint(is_linked));
    }
    // A file that cannot be read may be unchanged.
    let is_changed =
        |damage: &Damage| !damage.is_withheld() && !matches!(damage, Damage::Unreadable(_));
    let code = if damaged().any(|(_, damage)| is_changed(damage)) {
        ErrorCode::SkillDamaged
    } else {
        ErrorCode::SkillUnreadable
    };
    let message = format!("{number} of {checked} {verb} modified after signing");
    Failure::new(code, message)
        .details(wrong)
        .hint("vault doctor shows how to restore each of them")
}

fn verify_installed(
    vault: &Vault,
    name: &SkillRef,
    known: &[KnownVault],
    expected: Option<&VaultFingerprint>,
) -> Result<Report, Failure> {
    let inspected = run::inspect_skill(vault, name).map_err(|error| match error {
        run::RunError::Damaged { skill, damage } => {
            let mut failure = Failure::damaged_skill(&skill.to_string(), &damage);
            // An unreadable skill may be unchanged, so it keeps the code for that.
            if !matches!(damage, Damage::Unreadable(_)) {
                failure.code = ErrorCode::SkillDamaged.into();
            }
            failure
        }
        other => lookup::suggest_name(vault, other),
    })?;
    if let Some(damage) = inspected.examined.first_deviation() {
        let failure = Failure::damaged_skill(&name.to_string(), &damage);
        return Err(failure.hint(format!("vault doctor {name} shows how to restore it")));
    }
    let source_vault = known.iter().find(|known| known.origin == inspected.origin);
    // A fingerprint is that of one version of the vault's keys, which may be an older one.
    if let Some(expected) = expected
        && source_vault.is_none_or(|from| from.trust.chain().version_of(expected).is_none())
    {
        let whose = origin::describe_owner(&inspected.origin);
        return Err(fail!(
            VaultChanged,
            "{name} ({whose}) is not from the vault {expected}"
        ));
    }
    let manifest = &inspected.examined.manifest;
    let text = intact_line(
        manifest,
        &inspected.signer,
        &origin::describe_owner(&inspected.origin),
    );
    let intact = IntactSkill {
        name: inspected.name,
        origin: origin::format_origin(&inspected.origin),
        version: manifest.version,
        bundle_hash: inspected.bundle,
        signer: inspected.signer.into(),
        files: manifest.files.len(),
        ok: true,
    };
    Ok(Report::view(intact, text))
}

fn intact_line(manifest: &Manifest, signer: &PublicKey, whose: &str) -> String {
    let (name, version) = (&manifest.name, manifest.version);
    let (files, signer) = (
        count(manifest.files.len(), "file"),
        KeyFingerprint::publisher(signer),
    );
    format!(
        "{TICK} {BOLD}{name}{BOLD:#}  {DIM}version {version}, {files}, signed by {signer} ({whose}){DIM:#}"
    )
}

fn verify_export(
    context: &Context,
    path: &Path,
    arguments: &Arguments,
    known: &[KnownVault],
) -> Result<Report, Failure> {
    let manifest = arguments.manifest.as_deref();
    let expected = arguments.expect_key.as_ref();
    let verified = export::verify_export(path, manifest, known, expected)
        .map_err(|error| verification_failure(&error))?;
    // Fail if there is no skill, because a script would take it for a success.
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
    let lost = verified.iter().any(|skill| !skill.lost_modes.is_empty());
    let exit = if arguments.strict_modes && lost {
        Exit::Differences
    } else {
        Exit::Done
    };
    let (mut skills, mut lines) = (Vec::new(), Vec::new());
    for skill in verified {
        // Name the vault as this machine knows it. The export only proves its id.
        let vault_id = skill.manifest.vault_id;
        let mut known = known.iter();
        let from = known.find(|known| known.trust.roots().vault_id() == vault_id);
        let from = from.map(|known| &known.origin);
        let whose = match from {
            Some(from) => origin::describe_owner(from),
            None => format!("the vault {}", skill.fingerprint),
        };
        key_changes::warn_about_roots(context, &whose, &skill.warnings);
        lines.push(intact_line(&skill.manifest, &skill.signer, &whose));
        skills.push(VerifiedArtifact {
            path: skill.path,
            form: skill.form,
            name: skill.manifest.name,
            version: skill.manifest.version,
            vault_id,
            vault_fingerprint: skill.fingerprint,
            provenance: skill.manifest.provenance.identifier,
            files: skill.manifest.files.len(),
            signer: skill.signer.into(),
            known_as: from.map(origin::format_origin),
            lost_modes: skill.lost_modes,
        });
    }
    let path = path.to_owned();
    Ok(Report::view(VerifiedExport { path, skills }, lines.join("\n")).with_exit(exit))
}

/// Handles files that were executable when signed and are not now: makes them executable with
/// `fix`, otherwise warns.
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
    if !skill
        .fix_modes()
        .map_err(|error| verification_failure(&error))?
    {
        return Err(fail!(Usage, "{shown} is not a folder")
            .hint("unpack it, then run vault verify <folder> --fix-modes"));
    }
    for file in &skill.lost_modes {
        context.ui.note(format!("made {file} executable"));
    }
    Ok(())
}

fn verification_failure(error: &VerifyError) -> Failure {
    let message = message_chain(error);
    // A skill that could not be checked is not proven wrong, and gets another exit code.
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
        // Faults with an error code of their own keep it. All others get the general code.
        _ => match error.fault_code().and_then(ErrorCode::parse) {
            Some(code) => Failure::new(code, message),
            None => fail!(NotAsSigned, "{message}"),
        }
        .hint("do not use it; get it again from its owner"),
    }
}

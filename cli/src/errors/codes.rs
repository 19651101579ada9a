//! The table of all error codes of this program: the stable text that programs match, the exit
//! code, the meaning and the remedy. `vault help errors` prints it, and `docs/errors.md` is
//! generated from it. Codes that a service sends are in a table of the service; this module adds
//! hints for them.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use vault_service::error::ErrorCode as ServiceCode;

use super::Exit;

/// An error code.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
#[schemars(rename = "ErrorCode")]
pub struct CodeRow {
    /// The exit code of the process.
    #[schemars(with = "u8")]
    pub exit: Exit,
    /// The stable code as text.
    #[serde(rename = "code")]
    pub word: &'static str,
    /// The event, in one sentence.
    pub meaning: &'static str,
    /// The remedy, in one sentence.
    pub action: &'static str,
}

// One table yields the enum, its rows and the list of all codes, so that none is forgotten.
macro_rules! codes {
    ($($exit:ident $heading:literal { $($name:ident $word:literal $meaning:literal $action:literal;)* })*) => {
        /// The error codes of this program.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum ErrorCode {
            $($(#[doc = $meaning] $name,)*)*
        }

        impl ErrorCode {
            /// All codes, grouped by exit code.
            pub const ALL: &[Self] = &[$($(Self::$name,)*)*];

            /// The exit codes of failures, each with its heading in the printed table.
            const EXITS: &[(Exit, &str)] = &[$((Exit::$exit, $heading),)*];

            /// Returns the row of the table for this code.
            pub const fn row(self) -> CodeRow {
                match self {
                    $($(Self::$name => CodeRow {
                        exit: Exit::$exit,
                        word: $word,
                        meaning: $meaning,
                        action: $action,
                    },)*)*
                }
            }
        }
    };
}

codes! {
    Failed "failed" {
        Io "io" "A file or folder could not be read or written." "Check its permissions and the free space.";
        Internal "internal" "vault reached a state that should be impossible." "Report it with the command that you ran.";
        AccountNotFound "account_not_found" "No account of the service has this address." "`vault operator account list` shows them.";
        ActionNotFound "action_not_found" "The skill declares no action of this name." "`vault skill which <skill>` lists its actions.";
        ActionNotStarted "action_not_started" "The program of the action could not be started." "Check that its interpreter is installed.";
        AddressInUse "address_in_use" "The server could not listen on its port." "Choose another port with `--port`.";
        AgentNotFound "agent_not_found" "The agent is not installed on this machine." "`vault agents` lists the agents that are.";
        ClientNotFound "client_not_found" "No connected app has this name or id." "`vault clients list` shows them.";
        ConnectionDamaged "connection_damaged" "The file with the service's address could not be read." "Connect again: `vault cloud connect <url>`.";
        Database "database" "The server could not open or use its database." "Check `VAULT_DATABASE_URL`.";
        DeviceNotFound "device_not_found" "No device has this name, id or fingerprint." "`vault devices list` shows them.";
        DraftNotFound "draft_not_found" "No draft has this id." "`vault drafts list` shows those that wait.";
        EnvironmentMissing "environment_missing" "A variable that the action declares is not set." "Set it and run the action again.";
        FileExists "file_exists" "The file to write exists." "Choose another name; where the command has `--force`, it overwrites the file.";
        FolderExists "folder_exists" "The folder to create exists." "Choose another name.";
        InTheWay "in_the_way" "The file to write exists and is not a regular file." "Move it away, or choose another place.";
        KeyUnknown "key_unknown" "The vault has no key of this name or fingerprint." "`vault publishers list` lists its keys.";
        LockChanged "lock_changed" "`vault.lock` changed while a command ran that would have written it." "Run the command again.";
        LockInvalid "lock_invalid" "`vault.lock` is malformed." "Fix the line that is named, or take the file from version control.";
        LockTooLarge "lock_too_large" "The lock file is larger than vault reads." "Split the project, or remove entries.";
        LockVersion "lock_version" "`vault.lock` was written by a newer vault." "Update vault.";
        Mcp "mcp" "The MCP conversation ended with an error." "The log on standard error says more.";
        McpConfigChanged "mcp_config_changed" "Another program changed the agent's settings at the same time." "Run the command again.";
        McpConfigUnreadable "mcp_config_unreadable" "The agent's settings could not be read, and were left alone." "Fix the file, or add the entry by hand.";
        McpNameTaken "mcp_name_taken" "The agent has another server of this name." "`--name <other>` registers a second one.";
        NameTaken "name_taken" "Another skill of this name is installed." "`--replace` replaces it, `--name <other>` keeps both.";
        NameTwice "name_twice" "Two of the given skills have the same name." "Add one of them separately with `--name`.";
        NamespaceSelfSigned "namespace_self_signed" "The server signs this vault itself, so this machine cannot publish to it." "Add skills on the server.";
        NewerVault "newer_vault" "The keys of the vault are written in a form that only a newer vault reads." "Update vault.";
        NoLock "no_lock" "There is no `vault.lock` here or in a parent folder." "`vault add <source> --project` writes one.";
        NoTransform "no_transform" "The skill has no such transform." "`vault transform list <skill>` shows them.";
        NoVault "no_vault" "There is no vault here yet." "`vault add <folder>` creates one with its first skill.";
        NotAFile "not_a_file" "The path is not a regular file." "Give the path of a file.";
        NotAdded "not_added" "Some of the given skills could not be added." "The messages before say why.";
        NotConfirmed "not_confirmed" "The question was answered with no." "Pass `--yes` to answer yes.";
        NotInstalled "not_installed" "No installed skill has this name." "`vault skill list` shows them.";
        NotMended "not_mended" "Some files could not be fixed." "The messages before say why.";
        NotPacked "not_packed" "The export could not be packed." "Remove what the message names.";
        NotVerified "not_verified" "The skill could not be checked." "Check that its files are readable.";
        PolicySchema "policy_schema" "The policy does not have the form of a policy." "`vault policy check` shows the place.";
        PolicyUnknownName "policy_unknown_name" "The policy names a rule or member that does not exist." "`vault policy check` shows the place.";
        PolicyRegex "policy_regex" "A pattern of the policy is not a regular expression." "`vault policy check` shows the place.";
        ProgramFilesMissing "program_files_missing" "A file of the release is missing beside the archive." "Download `SHA256SUMS`, `SHA256SUMS.sig` and the statement into one folder.";
        RecoveryMissing "recovery_missing" "There is no recovery key at this path." "Give the file that holds it.";
        ReleaseNotFound "release_not_found" "The service keeps no release of this number." "`vault status --cloud` shows the current one.";
        ReleaseTooLarge "release_too_large" "The release cannot be built or is too large." "Remove what the message names.";
        RootNotMade "root_not_made" "The new list of keys breaks a rule, so the keys stay as they are." "The message says which rule.";
        RequirementConflict "requirement_conflict" "Skills require each other, or versions that exclude each other." "The message names the skills; one of them must change or leave the project.";
        RequirementRefused "requirement_refused" "A skill requires another one that vault does not take." "Ask the author of the skill; the message says what is wrong.";
        SigningFailed "signing_failed" "The skill could not be signed." "The message says what is wrong with it.";
        SkillChanged "skill_changed" "A skill changed while it was published." "Run `vault sync --cloud` again.";
        SkillMdSize "skill_md_size" "SKILL.md is larger than vault reads." "Move parts of it into other files.";
        SkillNotFound "skill_not_found" "No skill has this name." "`vault skill list` shows them.";
        SkillUnreadable "skill_unreadable" "The files of an installed skill could not be read." "Check their permissions, or add the skill again.";
        SourceMalformed "source_malformed" "What the source holds cannot be read as a skill." "Fix the source, or check its address.";
        SourceNotFound "source_not_found" "The source does not exist." "Check the address and the reference.";
        SourceTooLarge "source_too_large" "The source is larger than vault fetches." "Fetch it another way and add the folder.";
        SourceUnknown "source_unknown" "The skill has no source to update from." "Add it again from where it is published.";
        StillNeeded "still_needed" "Another skill of the project requires this one." "Remove both, or pass `--anyway`.";
        StepFailed "step_failed" "A step of the demo failed." "The message says which.";
        TimerNotChanged "timer_not_changed" "The timer of `vault cloud pull --every` could not be started or stopped." "Run the command that failed by hand, or pull from cron.";
        TransformFailed "transform_failed" "A transform can no longer be applied." "Fix the transform and add it again, or remove it.";
        TooMany "too_many" "The skill has as many transforms as it may have." "Remove one first.";
        UserNotFound "user_not_found" "The vault has no user with this address or id." "`vault users list` shows them.";
        VaultBusy "vault_busy" "Another vault command holds the writer lock." "Try again.";
        VaultEarlier "vault_earlier" "The vault was created before keys were listed in signed root versions, and can no longer be read." "Import its skills into a new vault: `vault import --from-vault <folder>`.";
        VaultFormat "vault_format" "The vault was written by a newer version." "Update vault.";
        VaultNameTaken "vault_name_taken" "Another linked vault has this name on this machine." "Choose another: `--as-vault <name>`.";
        VaultNotFound "vault_not_found" "The service has no namespace of this name." "`vault operator namespace list` shows them.";
        VersionNotStored "version_not_stored" "The earlier version is not stored." "`vault history <skill>` shows what is.";
    }
    Usage "wrong usage, or a setting that cannot be read" {
        Usage "usage" "The command line is wrong." "`vault <command> --help` shows the usage.";
        NoTtyError "NoTtyError" "`vault setup` asks questions and found no terminal." "In scripts: `vault add <folder>`, then `vault sync-profiles --discover`.";
        RemoteModeError "RemoteModeError" "The command changes this machine, and settings name a service to work on." "Unset what names the service.";
        ActionNameInvalid "action_name_invalid" "The name is not a name of an action." "Names have lower-case letters, digits and hyphens.";
        AcceptInvalid "accept_invalid" "The list of accepted findings could not be read." "Each `[[accept]]` has `rule`, `sha256`, `reason` and `expires`; see docs/audit.md.";
        AdminPasswordShort "admin_password_short" "The first owner's password is too short." "Choose a longer one.";
        AgentUnknown "agent_unknown" "No agent has this name." "`vault agents` lists the known ones.";
        AgentUnsupported "agent_unsupported" "It is not known where this agent keeps its MCP servers." "Add a server with the command `vault` and the argument `mcp` by hand.";
        AsNeedsOneSkill "as_needs_one_skill" "`--as` was given with more than one skill." "Give `--skill <name> --as <other-name>`.";
        BackupWrong "backup_wrong" "The file is not a backup that `vault backup` wrote." "Give the right file.";
        CatalogNeeded "catalog_needed" "This machine does not know the vault of the recovery file." "Say where it is published: `--from <url>/v/<slug>`, or a file with its catalog.";
        ClientAmbiguous "client_ambiguous" "Several connected apps fit." "Give more of the id.";
        DescriptionInvalid "description_invalid" "The description does not fit a skill." "Write one to 1024 characters.";
        DeviceAmbiguous "device_ambiguous" "Several devices fit." "Give more of the id.";
        ExpectKeyNeeded "expect_key_needed" "This machine knows nothing of the vault that signed this." "Ask its owner for the fingerprint of `vault key show`: `--expect-key <fingerprint>`.";
        KeyNotNamed "key_not_named" "The vault has several publishers, and it is not clear whose key was lost." "`vault publishers list` shows their names: `--lost <name>`.";
        KeysInsideVault "keys_inside_vault" "The folder for keys is inside the vault, or the vault is inside it." "Set `XDG_CONFIG_HOME`, or `--vault`, to a folder outside the other.";
        LinkAmbiguous "link_ambiguous" "Several linked vaults fit." "Name one with `--from`.";
        LockOutside "lock_outside" "The lock names a folder outside its project." "Keep the skill in the project, or in a repository.";
        McpNoProjectFile "mcp_no_project_file" "The agent reads no settings of a project." "Leave out `--project`.";
        ModeLocal "mode_local" "The settings keep this vault local, and a server was asked for." "Change `VAULT_MODE`.";
        NameInvalid "name_invalid" "The name is not valid." "The message says which names are.";
        NameNeedsOneSkill "name_needs_one_skill" "`--name` was given with more than one skill." "Add one skill at a time.";
        NoHome "no_home" "There is no home folder." "Set `HOME`.";
        NoService "no_service" "No service was named." "Give `--url`.";
        NoTty "no_tty" "A question could not be asked without a terminal." "Give the flag that answers it.";
        NotAuthored "not_authored" "The path is not a file of the vault that takes effect by approval." "Name policy.toml, profiles.toml or transforms/<skill>/<name>.md.";
        NotConnected "not_connected" "This vault is not connected to a service." "`vault cloud connect <url>`.";
        NotLinked "not_linked" "This machine is linked to no such vault." "`vault link <url>/v/<slug>`.";
        ProfilesInvalid "profiles_invalid" "`profiles.toml` is not valid." "Fix the place that is named.";
        SkillAmbiguous "skill_ambiguous" "Several skills of the source have this name, or the folder has several skills." "Name one by its folder: `--skill <folder>`, `vault show <folder>`.";
        SkillNotInCatalog "skill_not_in_catalog" "The linked vault does not publish this skill." "`vault cloud pull --all` installs all that it publishes.";
        SkillNotInSource "skill_not_in_source" "The source has no skill of this name." "The hint lists what it has.";
        TooManySkills "too_many_skills" "The source has more skills than one command takes." "`--max-skills <number>` takes more.";
        ProjectInvalid "project_invalid" "The folder cannot be a project, or something in it is in the way." "The message names the folder or file.";
        ProvenanceInvalid "provenance_invalid" "The given origin of the skill is not valid." "The message says what is wrong with it.";
        RecoveryPlace "recovery_place" "The recovery key would be in the same place as the keys that it replaces." "Keep it elsewhere: on a USB stick, or on another machine.";
        SettingInvalid "setting_invalid" "A setting has a value that it cannot have." "`vault config list --origin` shows where it was set.";
        SettingMissing "setting_missing" "A setting that the command needs is not set." "Set what the message names.";
        SettingNotForProjects "setting_not_for_projects" "A project's `vault.toml` sets something that only a user may set." "Move it to your own settings.";
        SettingUnknown "setting_unknown" "There is no setting of this name." "`vault config list` shows all.";
        SettingsInvalid "settings_invalid" "A settings file is not valid TOML." "Fix the place that is named.";
        SettingsUnreadable "settings_unreadable" "A settings file could not be read." "Check its permissions.";
        SkillMdMissing "skill_md_missing" "There is no SKILL.md." "`vault new <name>` creates one.";
        SlugMissing "slug_missing" "The address names no vault." "Give `<url>/v/<slug>`.";
        SlugTwice "slug_twice" "The vault was named twice, differently." "Name it once.";
        SourceInvalid "source_invalid" "The text is not a source." "`docs/sources.md` shows what is.";
        SourceUnreadable "source_unreadable" "The path does not exist or could not be read." "Check the path.";
        SourceUnsupported "source_unsupported" "The source is of a kind that cannot be used here." "Fetch it another way and add the folder.";
        TagNotInCatalog "tag_not_in_catalog" "The linked vault publishes no skill with this tag." "The hint names a tag that it has; `vault cloud pull --all` installs all that it publishes.";
        ReasonMissing "reason_missing" "An exception to the gate has no reason." "Give it with `--reason`.";
        IncludeUnknown "include_unknown" "`--include` names no file that looks like a secret in the skills of this command." "Write the path in the skill, as in `--include config/.env`; other files need no `--include`.";
        UnknownRule "unknown_rule" "The gate has no rule of this name." "A finding names its rule, as in `error[download-pipe-shell]`.";
        VaultFolderMissing "vault_folder_missing" "The folder that `--vault` names does not exist." "Check the path. `vault add`, `install`, `setup` and `link` create a vault there.";
    }
    Differences "differences found" {
        DraftOutdated "draft_outdated" "The skill has changed since the author of the draft saw it." "Compare, then accept it with `--anyway`, or decline it.";
        LockStale "lock_stale" "What is installed differs from `vault.lock`." "`vault install` installs what it names.";
        ProposalOutdated "proposal_outdated" "Another release or another list of keys came before this one." "Run `vault sync --cloud` again.";
        ReleaseConflict "release_conflict" "Someone else published at the same time." "Run `vault sync --cloud` again.";
        ReleaseAwaited "release_awaited" "No release counts yet: the keys of the vault have changed since the last one, or too few publishers have signed it." "Installed skills stay; pull, or ask for the archive, again once its publishers have released.";
        ReleaseExpired "release_expired" "The release, or the vault's list of keys, has expired." "Installed skills stay. A publisher makes a new release: `vault sync --cloud`.";
        ReviewNeeded "review_needed" "Somebody else made this, and nobody has read it on this machine." "Run the command on a terminal, or give the hash of what was read: `--payload` or `--bundle`.";
        ReleaseDiverged "release_diverged" "The service has a release that this vault does not know, and both changed the same things." "`--adopt` takes theirs, `--replace` drops them.";
        SourceRemoved "source_removed" "The source no longer has the skill." "Nothing was changed; add the skill from its new place, or remove it.";
        SyncFirst "sync_first" "Another publisher has published a release that this machine has not taken over." "Run `vault sync`, then the command again.";
        SignerRetired "signer_retired" "The key that signed the skill no longer publishes for its vault." "Get the skill again from its owner.";
    }
    NotAllowed "not signed in, not admitted or not allowed" {
        AccessDenied "access_denied" "Access was denied on the sign-in page." "Sign in again and allow it.";
        DevicePending "device_pending" "The owner has not admitted this machine yet." "The owner runs `vault devices admit <fingerprint>`.";
        DeviceRevoked "device_revoked" "The owner revoked this machine." "The owner can forget it; then link again.";
        FolderOfAnotherUser "folder_of_another_user" "A folder of the vault belongs to another user, so nothing is signed or installed there." "Run vault as its owner.";
        FolderOpenToOthers "folder_open_to_others" "Other users can write to a folder of the vault, so nothing is signed or installed there." "Run the `chmod` that the hint shows.";
        KeyMissing "key_missing" "The vault's secret key is not on this machine." "Copy the key file here, or work on the machine that has it.";
        KeyLocked "key_locked" "The key is protected by a passphrase, and none was given." "Run the command on a terminal, or name a file: `VAULT_KEY_PASSPHRASE_FILE`.";
        KeyOfAnotherUser "key_of_another_user" "The key file belongs to another user." "Run vault as its owner.";
        KeyOpenToOthers "key_open_to_others" "Other users can read the key file." "Run the `chmod` that the hint shows.";
        NoSuchVault "no_such_vault" "The signed-in account has no vault of this name." "Check the address, or ask its owner for an invitation.";
        NotPublisher "not_publisher" "No key on this machine may publish for the vault." "Ask its owner to add this machine, or recover it: `vault key recovery use <file>`.";
        PassphraseWrong "passphrase_wrong" "The passphrase does not open the file." "Try again.";
        RootKeyNeeded "root_key_needed" "Only the recovery key may change the keys of this vault." "Name its file: `--root-key <file>`.";
        SignInFailed "sign_in_failed" "The service refused the sign-in." "Sign in again: `vault cloud connect`.";
        SignInTimeout "sign_in_timeout" "There was no sign-in within ten minutes." "Run the command again.";
        SignedOut "signed_out" "You are not signed in to the service." "`vault cloud connect <url>`.";
        SourceNotAllowed "source_not_allowed" "The source refused your credentials." "Check your credentials for it.";
        SshAgent "ssh_agent" "The SSH agent that holds this machine's key does not run, is locked, lacks the key, or refused to sign." "`ssh-add -l` lists its keys.";
        StateMismatch "state_mismatch" "The answer belongs to another sign-in." "Run the command again and use the address that it prints.";
        TokenReadableByOthers "token_readable_by_others" "Other users can read the token file." "Run the `chmod` that the hint shows.";
        VaultUntrusted "vault_untrusted" "The vault was copied here without the folder that says which keys it trusts." "Restore a backup, or recover it: `vault key recovery use <file>`.";
    }
    Gate "refused by the gate or a policy" {
        GateBlocked "gate_blocked" "The gate refused a skill." "Fix the findings, or allow a rule after reading what it found.";
        PolicyInvalid "policy_invalid" "The policy could not be read, so nothing was done." "`vault policy check` shows the place.";
        SourceNotPublic "source_not_public" "The source is at an address that is not public." "Fetch it another way and add the folder.";
        SourceRefused "source_refused" "The policy does not allow this source." "`vault policy check` shows what it allows.";
        Symlink "symlink" "The skill holds a symbolic link or another entry that is not a regular file." "Put the file itself in its place, or leave it out.";
        TransformInvalid "transform_invalid" "The transform cannot be applied, or the gate refused its result." "Fix the transform.";
    }
    Integrity "a signature or digest is wrong" {
        BundleRefused "bundle_refused" "The service sent a bundle that the owner did not sign." "Nothing was changed; tell the owner.";
        CatalogAudience "catalog_audience" "The catalog was signed for another address." "Link the address that the owner publishes for.";
        CatalogClock "catalog_clock" "The catalog is from the future, lasts too long or too short, or this machine's clock is behind a time that it showed before." "Check the clock; if it was ahead before: `vault doctor --reset-clock`.";
        CatalogKey "catalog_key" "The catalog names a key that did not sign it or may not publish." "Nothing was changed; tell the owner.";
        CatalogNotOurs "catalog_not_ours" "The catalog is not this vault's." "Check the address; `vault key show` prints this vault's id.";
        CatalogPrevious "catalog_previous" "The catalog does not follow the one that is installed: its history forked." "Ask the owner; if it is right: `vault cloud pull --accept-fork`.";
        CatalogRelease "catalog_release" "The catalog is not of the release that was expected." "Nothing was changed; tell the owner.";
        CatalogSchema "catalog_schema" "The catalog does not have the form of a catalog." "Ask the owner.";
        CatalogSigner "catalog_signer" "The catalog lists a skill that no publisher of the vault signed." "Nothing was changed; tell the owner.";
        CatalogSlug "catalog_slug" "The catalog is for a vault of another name." "Link the address that the owner publishes for.";
        CatalogVaultId "catalog_vault_id" "The catalog belongs to another vault." "Ask the owner.";
        CatalogWithdrawn "catalog_withdrawn" "The catalog names a skill both as published and as withdrawn." "Ask the owner.";
        DerivedMismatch "derived_mismatch" "What was signed about a skill is not what its files say." "Nothing was changed; tell the owner.";
        KeyDamaged "key_damaged" "The key file is damaged, or belongs to another vault." "Restore it from a copy.";
        LockDigest "lock_digest" "The content of the source differs from `vault.lock`." "If the change is intended: `vault update NAME --project`.";
        ManifestSignature "manifest_signature" "The skill is not signed by a publisher of its vault." "Do not use it; ask its owner.";
        NotAsSigned "not_as_signed" "The skill was modified after signing." "Do not use it; get it again from its owner.";
        ProgramNotVerified "program_not_verified" "A file of a release of the program vault is not what a maintainer signed." "Do not install it; download the release again.";
        ProgramOlder "program_older" "The release archive is older than the program that is installed." "`--allow-older` accepts it.";
        NotSigned "not_signed" "There is no signed manifest for these files." "`--manifest <file>` names it.";
        RecoveryKeyWrong "recovery_key_wrong" "The key in the file may no longer change the vault's keys." "Give the right file.";
        RootForked "root_forked" "Two different lists of keys with one number were signed for the vault." "Nothing was changed; tell the owner: `vault key heal` fixes it.";
        RootInvalid "root_invalid" "The signed list of the vault's keys is not valid." "Nothing was changed; tell the owner.";
        RootRolledBack "root_rolled_back" "The service shows an older list of keys than is known here." "Nothing was changed; tell the owner.";
        ServiceRolledBack "service_rolled_back" "The service shows an older state than it confirmed before." "If it was restored on purpose: `vault sync --cloud --replace`.";
        SignaturesMissing "signatures_missing" "The catalog is not signed by the publishers of the vault." "Nothing was changed; tell the owner.";
        SkillDamaged "skill_damaged" "An installed skill was modified after signing." "Add or pull it again.";
        SkillRolledBack "skill_rolled_back" "The catalog has an older version of a skill than is known here, or the same version with other content." "Nothing was changed; tell the owner.";
        SourceDigest "source_digest" "The fetched bytes do not have the digest that was promised." "Nothing was used; tell the site's owner.";
        SourceSigner "source_signer" "The source is signed by another key than before." "Ask its owner; if the change is intended: `vault add <source> --replace`.";
        TwoCatalogs "two_catalogs" "The service has two catalogs of the same release." "If this library is the right one: `vault sync --cloud --replace`.";
        VaultChanged "vault_changed" "This is another vault than the one that was expected." "Nothing was changed; ask the owner for the fingerprint of `vault key show`.";
        VaultDamaged "vault_damaged" "A file of the vault is damaged." "`vault doctor` says which.";
        VaultSwapped "vault_swapped" "The folder held another vault, and no command of vault changed that." "Restore a backup, or remove the record that the hint names.";
    }
    Network "the network or the service" {
        AnswerUnreadable "answer_unreadable" "The service answered with something unexpected." "Check that the address is a vault service's.";
        BrokenOff "broken_off" "The connection was lost." "Try again.";
        EncodingRefused "encoding_refused" "The service sent a compressed body that was not requested." "Check for a proxy in between.";
        IssuerMismatch "issuer_mismatch" "The sign-in belongs to another address than the service's." "Connect to the address that the service calls its own.";
        NotAService "not_a_service" "The address is not a vault service's." "Give the service's public address.";
        Offline "offline" "The command needs the network, and `--offline` is set." "Leave out `--offline`.";
        RedirectRefused "redirect_refused" "The service answered with a redirect." "Give the service's own address.";
        SignInUnavailable "sign_in_unavailable" "The service could not complete the sign-in." "Try again later.";
        SourceFailed "source_failed" "Some sources could not be reached." "The messages before say which.";
        SourceUnreachable "source_unreachable" "The source could not be reached." "Check the network and the address.";
        Timeout "timeout" "The service did not answer in time." "Try again.";
        TlsUnavailable "tls_unavailable" "No secure connection could be prepared." "Check the system's certificates.";
        TooLarge "too_large" "The service sent more than was allowed." "Tell its operator.";
        TooSlow "too_slow" "The service sends less than 1 KiB a second." "Try again.";
        Unreachable "unreachable" "The service could not be reached." "Check that it runs and the address is right.";
    }
    Interrupted "interrupted" {
        Interrupted "interrupted" "The command was interrupted." "Run it again.";
        NothingChosen "nothing_chosen" "Nothing was chosen." "Run the command again and choose.";
    }
}

impl ErrorCode {
    /// Finds the code with this text.
    pub fn parse(word: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|code| code.row().word == word)
    }
}

/// The code of a failure, from this program or from a service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FailureCode {
    /// A code of this program.
    Own(ErrorCode),
    /// A code that a service sent.
    Remote {
        /// The code in the service's response, or `http_<status>` if it has none.
        word: String,
        /// The HTTP status.
        status: u16,
        /// The exit code of the process, chosen by the status.
        exit: Exit,
    },
}

impl FailureCode {
    /// Returns the code as text, as `--json` prints it. The code of a failure never changes its
    /// meaning.
    pub fn word(&self) -> &str {
        match self {
            Self::Own(code) => code.row().word,
            Self::Remote { word, .. } => word,
        }
    }

    /// Returns the exit code of the process.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Own(code) => code.row().exit,
            Self::Remote { exit, .. } => *exit,
        }
    }
}

impl From<ErrorCode> for FailureCode {
    fn from(code: ErrorCode) -> Self {
        Self::Own(code)
    }
}

impl PartialEq<ErrorCode> for FailureCode {
    fn eq(&self, code: &ErrorCode) -> bool {
        *self == Self::Own(*code)
    }
}

impl PartialEq<ServiceCode> for FailureCode {
    fn eq(&self, code: &ServiceCode) -> bool {
        // Compare codes and not texts: a text that this version does not know must equal no code.
        matches!(self, Self::Remote { word, .. } if service_code(word) == Some(*code))
    }
}

/// Finds the service's code with this text. Returns `None` for codes that this version does not
/// know, for example of a newer service.
pub fn service_code(word: &str) -> Option<ServiceCode> {
    let mut all = ServiceCode::ALL.iter().copied();
    all.find(|code| code.row().code == word)
}

/// Returns what the user can do about a refusal of a service, if the code alone determines it.
pub const fn service_hint(code: ServiceCode) -> Option<&'static str> {
    Some(match code {
        ServiceCode::DevicePending => {
            "ask the owner to admit this machine: vault devices admit <fingerprint>"
        }
        ServiceCode::DeviceRevoked => "ask the owner; a forgotten machine can enrol again",
        ServiceCode::DeviceUnknown => {
            "the vault was deleted, or this machine's record was: ask the owner. To enrol again: vault link <url>/v/<slug>"
        }
        ServiceCode::VaultNotFound | ServiceCode::NotFound => "check the address and the slug",
        ServiceCode::CatalogNotPublished => "the owner publishes with: vault sync --cloud",
        ServiceCode::SubscriptionLapsed => {
            "installed skills keep working; the owner must renew the subscription"
        }
        ServiceCode::PendingQueueFull => {
            "20 machines are pending: the owner must admit or deny some of them"
        }
        ServiceCode::EnrolmentNeedsCode => {
            "ask the owner for one (vault devices invite), then: vault link <url>/v/<slug> --code <code>"
        }
        ServiceCode::EnrolmentCodeInvalid => "ask the owner for a new one: vault devices invite",
        ServiceCode::NamespaceSelfSigned => {
            "the server signs this vault itself: add skills on the server"
        }
        ServiceCode::InsufficientScope => {
            "sign in again and allow writing on the page: vault cloud connect <url>. If the page does not \
             offer it, ask an owner: vault users scopes <e-mail> --grant write"
        }
        ServiceCode::OperatorElevationRequired => "run it again, and sign in as an operator",
        ServiceCode::SecondFactorRequired => {
            "set a second factor up at <url>/account, then sign in again: vault cloud connect <url>"
        }
        ServiceCode::ConfirmationNeeded => {
            "run the command again, and confirm on the page whose address it prints"
        }
        ServiceCode::ConfirmationDeclined => "wait a minute, then run the command again",
        ServiceCode::OwnerRequired => {
            "ask an owner to do it, or to make you one: vault users role <e-mail> owner"
        }
        ServiceCode::PublisherRequired => {
            "ask to become a publisher: vault publishers request <url>/v/<slug>"
        }
        ServiceCode::OperatorRequired | ServiceCode::VaultSuspended => {
            "ask the operator of the service"
        }
        ServiceCode::SlugTaken | ServiceCode::SlugReserved => "choose another name",
        ServiceCode::EmailInvalid => "write it as in ann@example.com",
        ServiceCode::DraftState => "vault drafts list --all shows what became of it",
        ServiceCode::DraftBase => {
            "vault drafts show <id> shows the differences; accept <id> --anyway takes it as it is"
        }
        ServiceCode::DraftQueueFull => {
            "owners and publishers make room: vault drafts list, then accept or decline"
        }
        ServiceCode::DeviceState => {
            "vault devices list shows it; a forgotten machine may enrol again"
        }
        ServiceCode::QuotaFull => {
            "an owner of the vault can remove what is no longer needed, or ask the operator of the \
             service for more room"
        }
        ServiceCode::QuotaExceeded => {
            "vault status shows what is used; the operator of the service can allow more"
        }
        // For the other codes, the message suffices or the status determines the hint.
        _ => return None,
    })
}

fn rows_of(exit: Exit) -> impl Iterator<Item = CodeRow> {
    let rows = ErrorCode::ALL.iter().map(|code| code.row());
    rows.filter(move |row| row.exit == exit)
}

/// Formats the table of codes as `vault help errors` prints it.
pub fn table_text() -> String {
    let mut text = String::new();
    for (exit, heading) in ErrorCode::EXITS {
        let _ = writeln!(text, "Exit {}: {heading}", exit.code());
        for CodeRow {
            word,
            meaning,
            action,
            ..
        } in rows_of(*exit)
        {
            let _ = writeln!(text, "  {word}\n      {meaning}\n      {action}");
        }
        text.push('\n');
    }
    text + "A refusal by a service keeps the service's code, listed in shared/service/ERRORS.md."
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the expected content of `docs/errors.md`.
    fn page() -> String {
        let mut page = String::from(
            "# Error codes\n\n\
             Written from `cli/src/errors/codes.rs`; a test keeps this page equal to it. With `--json` a failed command prints its code as\n\
             `error.code`. Match on the code or the exit code; messages may change. A refusal by a service keeps the service's code\n\
             ([shared/service/ERRORS.md](../shared/service/ERRORS.md)); its exit code follows from the HTTP status: 401 and 403 give 4, 402 gives 8,\n\
             408, 429 and 5xx give 7, the rest 1.\n",
        );
        for (exit, heading) in ErrorCode::EXITS {
            let _ = writeln!(page, "\n## Exit {}: {heading}\n", exit.code());
            page.push_str("| code | what happened | what to do |\n|---|---|---|\n");
            for CodeRow {
                word,
                meaning,
                action,
                ..
            } in rows_of(*exit)
            {
                let _ = writeln!(page, "| `{word}` | {meaning} | {action} |");
            }
        }
        page
    }

    #[test]
    fn written_pages_have_the_table_of_codes() {
        vault_testing::page::assert_current("docs/errors.md", &page());
        let text = table_text();
        assert!(
            ErrorCode::ALL
                .iter()
                .all(|code| text.contains(code.row().word))
        );
    }

    #[test]
    fn every_code_is_used_and_has_one_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut sources = String::new();
        // The errors in these files have their code as text, so their sources do not contain
        // `ErrorCode::`.
        for file in [
            "format/src/catalog/error.rs",
            "format/src/manifest.rs",
            "policy/src/file/fault.rs",
            "format/src/root/error.rs",
            "format/src/root/standing.rs",
        ] {
            let file = root.join("../shared").join(file);
            sources.push_str(&std::fs::read_to_string(file).unwrap());
        }
        let mut folders = vec![root.join("src")];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("errors/codes.rs") {
                    sources.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        sources.retain(|c| !c.is_whitespace());
        for code in ErrorCode::ALL {
            let word = code.row().word;
            assert_eq!(
                ErrorCode::parse(word),
                Some(*code),
                "`{word}` has two lines"
            );
            let name = format!("ErrorCode::{code:?}");
            let ends = |(at, _)| !sources[at + name.len()..].starts_with(char::is_alphanumeric);
            let is_named = sources.match_indices(&name).any(ends);
            let other = [format!("fail!({code:?},"), format!("\"{word}\"")];
            let is_used = is_named || other.iter().any(|text| sources.contains(text));
            assert!(is_used, "nothing fails with `{word}`");
        }
    }
}

//! `…/enrolment` and `…/enrolment-codes`: enrolment codes, with which machines are admitted as soon
//! as they enrol, and the setting that makes them necessary.

use axum::http::StatusCode;
use serde_json::json;
use vault_api::{EnrolmentSetting, NewEnrolmentCode};
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{Document, Record, When, Write};

use super::call::{Answer, Call, Items, trim_page};
use super::principal::Principal;
use crate::app::{ActingUser, App};
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::audit::Change;
use crate::model::device::clean_hostname;
use crate::model::enrolment::{
    AppCode, AppMachines, CodeUses, Enrolment, EnrolmentCode, LoadedAppCodes, code_key,
    codes_partition, hash_prefix, id_of, used_key,
};
use crate::model::made::{ValidCode, find_valid_codes};
use crate::model::namespace::{self, Namespace};
use crate::model::permit::Act;
use crate::model::token::{Secret, SecretKind};
use crate::transaction::Transaction;

/// Maximum number of machines that one code admits.
pub(crate) const MAX_USES: u32 = 10_000;
/// Default lifetime of a code, in seconds: a day.
const DEFAULT_SECONDS: i64 = 24 * 3600;
/// Minimum and maximum lifetime of a code, in seconds: a minute and 90 days.
const LIFETIME_SECONDS: std::ops::RangeInclusive<i64> = 60..=90 * 24 * 3600;

/// `text` is the code itself, which only the answer to its creation contains.
fn to_api_code(
    hash: &Digest,
    code: EnrolmentCode,
    used: u32,
    text: Option<String>,
) -> vault_api::EnrolmentCode {
    vault_api::EnrolmentCode {
        id: id_of(hash),
        code: text,
        uses: code.uses,
        used,
        name: code.name,
        created_by: code.created_by,
        client_id: code.client.map(Into::into),
        created_at: code.created_at,
        expires_at: code.expires_at,
    }
}

/// Creates a code. Only this answer contains its text.
pub(super) async fn handle_create_code(call: Call) -> Answer {
    call.path_namespace()?;
    let new_code: NewEnrolmentCode = call.json_body().await?;
    let act = code_act(&new_code);
    let creation = create_code(&call.to_principal(), new_code, None).await;
    let created_code = call.confirm_outcome(&act, creation).await?;
    let created_code = created_code.ok_or(ErrorCode::Unavailable)?;
    Ok(json_answer(StatusCode::CREATED, &created_code))
}

/// Returns the number of machines and the lifetime in seconds that a request asks for.
fn code_terms(asked: &NewEnrolmentCode) -> (u32, i64) {
    (
        asked.uses.unwrap_or(1),
        asked.expires_in.unwrap_or(DEFAULT_SECONDS),
    )
}

/// Returns the act of creating this code. It needs a permit, a confirmation by the person, if the
/// code is for many machines or the app has made many codes before.
pub(crate) fn code_act(asked: &NewEnrolmentCode) -> Act {
    let (uses, seconds) = code_terms(asked);
    Act::CreateCode {
        uses,
        seconds,
        name: asked.name.as_deref().and_then(clean_hostname),
    }
}

/// Creates a code. Uses the permit for it if the code is for more than
/// [`UNCONFIRMED_MACHINES`](crate::model::enrolment::UNCONFIRMED_MACHINES) machines, or if the app
/// would pass that number with all its codes together. Only this answer contains the text of the
/// code. `mark` is a write of the same commit that fails if the same request was made before; the
/// result is then `None`. Fails with `ParameterInvalid` if the number of machines or the lifetime
/// is out of bounds, and with `HostnameInvalid` if no machine can have the name.
pub(crate) async fn create_code(
    by: &Principal<'_>,
    asked: NewEnrolmentCode,
    mark: Option<Write>,
) -> Result<Option<vault_api::EnrolmentCode>, Refusal> {
    let (uses, seconds) = code_terms(&asked);
    if !(1..=MAX_USES).contains(&uses) || !LIFETIME_SECONDS.contains(&seconds) {
        return Err(ErrorCode::ParameterInvalid.into());
    }
    let act = code_act(&asked);
    let name = match asked.name {
        None => None,
        Some(name) => Some(clean_hostname(&name).ok_or(ErrorCode::HostnameInvalid)?),
    };
    let (app, namespace) = (by.app, by.namespace);
    let now = app.clock.now();
    let code = EnrolmentCode {
        uses,
        name,
        created_by: by.actor.user.clone(),
        created_at: now,
        expires_at: now.plus_seconds(seconds),
        client: by.client().cloned(),
        consent: by.consent.cloned(),
        confirmed: false,
    };
    let secret = Secret::fresh(SecretKind::Enrolment, &app.random);
    // Only the hash is stored, so that a copy of the database admits no machine.
    let hash = secret.hash();
    let after = json!({
        "uses": code.uses, "name": code.name, "expires_at": code.expires_at,
    });
    let change = Change::about(&id_of(&hash)).with_after(after);
    let invite = async |tx: Transaction<'_>| {
        // The mark comes first: `commit_with_limits` reports its failure as a repeated request,
        // that of any later write as a conflict.
        let bounds = usize::from(mark.is_some());
        tx.write_all(mark.clone());
        let confirmed = match decide_unconfirmed(&tx, by.as_acting_user(), &hash, &code).await? {
            Unconfirmed::Allowed(listing) => {
                tx.write_all(listing);
                false
            }
            Unconfirmed::TooMany => {
                by.spend_permit(&tx, &act).await?;
                true
            }
        };
        let code = EnrolmentCode {
            confirmed,
            ..code.clone()
        };
        let (key, document) = (code_key(&namespace.id, &hash), Document::from_value(&code)?);
        tx.write(Write::put_until(
            key,
            document,
            When::Absent,
            code.expires_at,
        ));
        by.write_audit(&tx, "enrolment.invite", change.clone())?;
        Ok::<_, Refusal>(tx.commit_with_limits(bounds).await?.is_none())
    };
    let is_created = app.change(invite).await?;
    let text = secret.text().to_owned();
    Ok(is_created.then(|| to_api_code(&hash, code, 0, Some(text))))
}

/// Answer to the question whether a code may be created without a confirmation.
enum Unconfirmed {
    /// The code may be created without a confirmation. The write adds a code of an app to the list
    /// by which the app's codes are counted.
    Allowed(Option<Write>),
    /// The code needs a confirmation, because it would admit too many machines.
    TooMany,
}

/// Decides whether this code needs a confirmation.
async fn decide_unconfirmed(
    tx: &Transaction<'_>,
    acting: ActingUser<'_>,
    hash: &Digest,
    code: &EnrolmentCode,
) -> Result<Unconfirmed, StoreError> {
    let uses = code.uses;
    if AppMachines::default().need_confirmation(uses) {
        return Ok(Unconfirmed::TooMany);
    }
    // In the console a person creates each code.
    let Some(client) = acting.client() else {
        return Ok(Unconfirmed::Allowed(None));
    };
    let codes = LoadedAppCodes::load(tx, &acting.namespace.id, client).await?;
    if codes.machines.need_confirmation(uses) {
        return Ok(Unconfirmed::TooMany);
    }
    let listed = AppCode {
        hash: *hash,
        uses,
        expires_at: code.expires_at,
    };
    let write = codes.adding_write(listed, tx.now())?;
    Ok(Unconfirmed::Allowed(Some(write)))
}

/// Lists the codes that are still valid.
pub(super) async fn list_codes(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let page = call.page_params()?;
    let (items, next) =
        read_codes_page(&call.app, &namespace, page.after.as_deref(), page.limit).await?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Reads up to `limit` codes that are still valid, with the key after which the next page begins. A
/// page is short if the apps that made some of its codes have been ended.
pub(crate) async fn read_codes_page(
    app: &App,
    namespace: &Namespace,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<vault_api::EnrolmentCode>, Option<String>), Refusal> {
    let records = &app.records;
    let page_records = records
        .list_page(&codes_partition(&namespace.id), "", after, limit + 1)
        .await?;
    let (page_records, next) = trim_page(page_records, limit);
    let codes = find_valid_codes(app, page_records, app.now()).await?;
    let keys: Vec<_> = codes
        .iter()
        .map(|code| used_key(&namespace.id, &code.hash))
        .collect();
    let counts = if keys.is_empty() {
        Vec::new()
    } else {
        records.get_many(&keys).await?
    };
    let mut items = Vec::new();
    for (ValidCode { hash, code }, count) in codes.into_iter().zip(counts) {
        let count = count.map(|count| count.read::<CodeUses>()).transpose()?;
        items.push(to_api_code(
            &hash,
            code.value,
            count.unwrap_or_default().used,
            None,
        ));
    }
    Ok((items, next))
}

fn parse_code_hash(record: &Record) -> Result<Digest, Refusal> {
    let hash = record.key.key.parse();
    hash.map_err(|_| Refusal::new(ErrorCode::Internal))
}

pub(super) async fn handle_end_code(call: Call) -> Answer {
    let ended_code = end_code(call.to_acting()?, call.param("id")).await?;
    Ok(json_answer(StatusCode::OK, &ended_code))
}

/// Adds to the commit the writes that delete the code of this hash and revision, with the entry in
/// the audit log.
pub(super) fn delete_code(
    tx: &Transaction<'_>,
    acting: ActingUser<'_>,
    (hash, revision): (&Digest, u64),
    change: Change,
) -> Result<(), StoreError> {
    let namespace = &acting.namespace.id;
    tx.write(Write::delete(code_key(namespace, hash), When::At(revision)));
    tx.write(Write::delete(used_key(namespace, hash), When::Any));
    acting.write_audit(tx, "enrolment.end", change)
}

/// Ends the code of this id. Machines that were admitted with it stay admitted. Fails with
/// `NotFound` if there is no such code.
pub(crate) async fn end_code(
    acting: ActingUser<'_>,
    id: &str,
) -> Result<vault_api::EnrolmentCode, Refusal> {
    let ActingUser { app, namespace, .. } = acting;
    let prefix = hash_prefix(id).ok_or(ErrorCode::NotFound)?;
    app.change(async |tx| {
        // The id is the beginning of the hash, so the first key with this prefix is the code.
        let matching_codes = tx
            .records
            .list_page(&codes_partition(&namespace.id), prefix, None, 1)
            .await?;
        let record = matching_codes.first().ok_or(ErrorCode::NotFound)?;
        let hash = parse_code_hash(record)?;
        let count = tx
            .get::<CodeUses>(&used_key(&namespace.id, &hash))
            .await?
            .map_or(0, |it| it.value.used);
        let change = Change::about(&id_of(&hash)).with_before(json!({ "used": count }));
        delete_code(&tx, acting, (&hash, record.revision), change)?;
        Ok(to_api_code(&hash, record.read()?, count, None))
    })
    .await
}

pub(super) async fn handle_set_enrolment(call: Call) -> Answer {
    let acting = call.to_acting()?;
    let setting: EnrolmentSetting = call.json_body().await?;
    set_enrolment(acting, setting.enrolment).await?;
    Ok(json_answer(StatusCode::OK, &setting))
}

/// Sets whether machines need a code to enrol. Writes nothing if the setting is the same already.
pub(crate) async fn set_enrolment(
    acting: ActingUser<'_>,
    enrolment: Enrolment,
) -> Result<(), Refusal> {
    let ActingUser { app, namespace, .. } = acting;
    let slug = &namespace.slug;
    app.change(async |tx| {
        let namespace_and_revision = namespace::find_namespace(&tx, slug).await?;
        let (mut current, revision) = namespace_and_revision.ok_or(ErrorCode::NotFound)?;
        let before = current.enrolment;
        if before == enrolment {
            return Ok(());
        }
        current.enrolment = enrolment;
        let change = Change::about(&slug)
            .with_before(json!({ "enrolment": before }))
            .with_after(json!({ "enrolment": enrolment }));
        tx.write(current.update_write(revision)?);
        Ok(acting.write_audit(&tx, "enrolment.set", change)?)
    })
    .await
}

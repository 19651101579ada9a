//! Ends an app's access to a vault, and with it things that the app made there: enrolment codes,
//! machines that it admitted, invitations and webhooks.
//!
//! One commit writes at most [`MAX_ROWS`] rows. What does not fit is left and listed in the answer,
//! and the same request sent again continues. Each thing ends by the rule of its own route. Members
//! whom the app invited stay: their removal needs a confirmation for each.

use serde_json::{Value, json};
use vault_api::{EndedKind, MadeByClient, RevokedClient};
use vault_store::StoreError;
use vault_store::records::{Document, MAX_KEYS, MAX_PAGE, When, Write};

use super::devices::{Decision, decide_found_device};
use super::enrolment::delete_code;
use super::notices::remove_webhooks;
use super::principal::Principal;
use super::users::withdraw_invitations;
use crate::error::{ErrorCode, Refusal};
use crate::model::Versioned;
use crate::model::audit::Change;
use crate::model::client::{ClientId, Connection, connection_key};
use crate::model::device::{Device, DeviceStatus, FoundDevice};
use crate::model::enrolment::{EnrolmentCode, code_key};
use crate::model::grant::{Grant, grants_partition};
use crate::model::made::{AppResources, ValidCode};
use crate::model::places;
use crate::model::token::token_key;
use crate::model::user::User;
use crate::transaction::Transaction;

/// Maximum number of rows that one request writes, besides those of the app's connection; a commit
/// has at most 100.
const MAX_ROWS: usize = 90;
/// Maximum number of pages of grants that are read to count the tokens of a revoked client.
const MAX_COUNT_PAGES: usize = 10;
/// Maximum number of ids of each kind in an answer.
const MAX_LISTED: usize = 100;
/// Maximum number of commits in which one request keeps or ends codes, before the commit that ends
/// the access.
const MAX_CODE_COMMITS: usize = 10;

/// Which of the things of one kind, such as codes or machines, are selected.
#[derive(Clone, Debug, Default)]
pub(crate) enum Choice {
    #[default]
    Nothing,
    All,
    Listed(Vec<String>),
}

impl Choice {
    fn takes(&self, id: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Listed(ids) => ids.iter().any(|listed| listed == id),
        }
    }

    pub(crate) const fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// Selection of what ends: the access of an app, and things that it made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// Whether the app loses its access. Its enrolment codes then end too, except `kept_codes`.
    pub(crate) access: bool,
    /// Enrolment codes that stay valid although the app loses its access.
    pub(crate) kept_codes: Choice,
    /// Machines to revoke, among those that the app admitted.
    pub(crate) machines: Choice,
    /// Invitations to withdraw, among those that the app sent.
    pub(crate) invitations: Choice,
    /// Webhooks to remove, among those that the app added.
    pub(crate) webhooks: Choice,
}

impl Ending {
    /// Creates the ending of the access of an app, and of none of the things that it made except
    /// its codes.
    pub(crate) fn of_access() -> Self {
        Self {
            access: true,
            ..Self::default()
        }
    }

    /// Selects everything that the app made of these kinds.
    pub(crate) fn add_kinds(&mut self, kinds: impl IntoIterator<Item = EndedKind>) {
        for kind in kinds {
            *match kind {
                EndedKind::Machines => &mut self.machines,
                EndedKind::Invitations => &mut self.invitations,
                EndedKind::Webhooks => &mut self.webhooks,
            } = Choice::All;
        }
    }

    /// Whether it changes more than the access of the app, so that the caller needs the scope
    /// `write`.
    pub(crate) const fn needs_write(&self) -> bool {
        !self.kept_codes.is_nothing() || self.ends_things()
    }

    /// Whether a code that would end with the access of the app is to stay valid.
    fn keeps(&self, code: &ValidCode, id: &ClientId) -> bool {
        code.depends_on(id) && self.kept_codes.takes(&code.id())
    }

    /// Whether a code ends that an earlier end of the app kept: such a code no longer depends on
    /// the app's consent.
    fn ends_kept(&self, code: &ValidCode, id: &ClientId) -> bool {
        !code.depends_on(id) && !self.kept_codes.takes(&code.id())
    }

    const fn ends_things(&self) -> bool {
        !(self.machines.is_nothing() && self.invitations.is_nothing() && self.webhooks.is_nothing())
    }
}

/// Number of rows that still fit into a commit.
struct Room {
    rows: usize,
}

impl Room {
    /// Reserves the rows of one thing; false if they do not fit.
    const fn take(&mut self, rows: usize) -> bool {
        let fits = rows <= self.rows;
        if fits {
            self.rows -= rows;
        }
        fits
    }
}

/// The things of an app that one commit ends or keeps.
#[derive(Default)]
struct Ended {
    /// Codes that are to stay valid without the consent of the app.
    kept_codes: Vec<ValidCode>,
    /// Codes to delete, which an earlier end of the app kept.
    codes: Vec<ValidCode>,
    machines: Vec<Versioned<Device>>,
    invitations: Vec<Versioned<User>>,
    webhooks: Vec<String>,
}

impl Ended {
    /// Removes the selected things from `made`, as far as one commit has room for them. Codes are
    /// only taken if the access of the app ends now: a code that an earlier end kept goes on until
    /// it is ended by its id, or the app is connected again and ended.
    fn take(made: &mut AppResources, id: &ClientId, ending: &Ending, ends_access: bool) -> Self {
        let mut room = Room { rows: MAX_ROWS };
        // Each code writes its own row and one of the log, and so does each machine.
        let kept_codes = take_chosen(&mut made.codes, |code| {
            ends_access && ending.keeps(code, id) && room.take(2)
        });
        // Such a code does not depend on the app's consent and would stay valid, so it is deleted.
        let codes = take_chosen(&mut made.codes, |code| {
            ends_access && ending.ends_kept(code, id) && room.take(3)
        });
        // All webhooks together are one row, but each writes one row of the log.
        let webhooks = take_chosen(&mut made.webhooks, |webhook| {
            ending.webhooks.takes(&webhook.id) && room.take(2)
        });
        let machines = take_chosen(&mut made.machines, |device| {
            ending.machines.takes(&device.value.device_id) && room.take(2)
        });
        // An invitation also has an index entry by its address, and the caller's own row is
        // checked.
        let invitations = take_chosen(&mut made.invitations, |user| {
            ending.invitations.takes(&user.value.id) && room.take(3)
        });
        Self {
            kept_codes,
            codes,
            machines,
            invitations,
            webhooks: webhooks.into_iter().map(|webhook| webhook.id).collect(),
        }
    }

    /// Adds the writes that end or keep these things to the commit.
    async fn write_in(self, tx: &Transaction<'_>, by: &Principal<'_>) -> Result<(), Refusal> {
        for code in self.kept_codes {
            tx.write(keep_write(by, code.clone())?);
            let change = Change::about(&code.id());
            by.write_audit(tx, "enrolment.keep", change)?;
        }
        for code in self.codes {
            let change = Change::about(&code.id());
            delete_code(
                tx,
                by.as_acting_user(),
                (&code.hash, code.code.revision),
                change,
            )?;
        }
        let is_admitted = |device: &&Versioned<Device>| device.value.status == DeviceStatus::Active;
        let admitted = self.machines.iter().filter(is_admitted).count() as u64;
        if admitted > 0 {
            let home = by.namespace.to_ref();
            tx.write(places::revocation_write(tx, &home, admitted).await?);
        }
        for device in self.machines {
            let found = FoundDevice {
                device: device.value,
                revision: Some(device.revision),
            };
            decide_found_device(tx, by.as_acting_user(), found, Decision::Revoke)?;
        }
        withdraw_invitations(tx, by, &self.invitations).await?;
        remove_webhooks(tx, by, &self.webhooks).await
    }
}

/// Removes the items for which `chosen` is true from a list, and returns them.
fn take_chosen<T>(items: &mut Vec<T>, chosen: impl FnMut(&T) -> bool) -> Vec<T> {
    let (taken, left) = std::mem::take(items).into_iter().partition(chosen);
    *items = left;
    taken
}

/// Returns the write that keeps a code valid. The code then depends on the consent of the app that
/// keeps it: otherwise an app could leave codes behind that do not end when it is ended. A person
/// who keeps it in the console has no app, so it then depends on none.
fn keep_write(by: &Principal<'_>, code: ValidCode) -> Result<Write, StoreError> {
    let key = code_key(&by.namespace.id, &code.hash);
    let kept = EnrolmentCode {
        consent: by.consent.cloned(),
        ..code.code.value
    };
    let when = When::At(code.code.revision);
    let document = Document::from_value(&kept)?;
    Ok(Write::put_until(key, document, when, kept.expires_at))
}

fn to_api_made(made: &AppResources) -> MadeByClient {
    let mut is_cut = made.more;
    let mut first = |ids: &mut dyn Iterator<Item = String>| {
        let listed: Vec<String> = ids.take(MAX_LISTED).collect();
        is_cut |= ids.next().is_some();
        listed
    };
    MadeByClient {
        codes: first(&mut made.codes.iter().map(ValidCode::id)),
        machines: first(&mut made.machines.iter().map(|it| it.value.device_id.clone())),
        invitations: first(&mut made.invitations.iter().map(|it| it.value.id.clone())),
        users: first(&mut made.members.iter().map(|it| it.value.id.clone())),
        webhooks: first(&mut made.webhooks.iter().map(|it| it.id.clone())),
        more: is_cut,
    }
}

/// Ends the access of this app to the vault and the things that `ending` selects. Fails with
/// `ClientNotFound` if the app has no access that could end and `ending` selects no things either.
pub(crate) async fn end_app(
    by: &Principal<'_>,
    id: &str,
    ending: &Ending,
) -> Result<RevokedClient, Refusal> {
    let id: ClientId = id.parse().map_err(|_| ErrorCode::ClientNotFound)?;
    if by.client() == Some(&id) && !ending.kept_codes.is_nothing() {
        return Err(Refusal::new(ErrorCode::ParameterInvalid).detail(
            "An app cannot keep its codes when it ends itself: end it in the console or with another app.",
        ));
    }
    let (revoked_tokens, ended) = end_in_steps(by, &id, ending).await?;
    // Read after the commit: until the access ended, a machine could still enrol with a code of the
    // app.
    let left = AppResources::read(by.app, &by.namespace.to_ref(), &id).await?;
    Ok(RevokedClient {
        client_id: id.to_string(),
        revoked_tokens,
        ended,
        left: to_api_made(&left),
    })
}

/// Ends the app in one commit. If that has no room for all codes, commits before it keep or end
/// codes first: otherwise a code to keep would end with the app, and a code kept before would stay
/// valid. Returns the number of tokens that end, and the ids of the things that end with them.
/// Fails with 503 if there are more codes than one request writes.
async fn end_in_steps(
    by: &Principal<'_>,
    id: &ClientId,
    ending: &Ending,
) -> Result<(usize, MadeByClient), Refusal> {
    let (mut left, mut codes) = (0, Vec::new());
    for _ in 0..=MAX_CODE_COMMITS {
        let end = async |tx| end_app_in(&tx, by, id, ending).await;
        match by.app.change(end).await? {
            Step::Ended(revoked_tokens, mut ended) => {
                codes.append(&mut ended.codes);
                return Ok((revoked_tokens, MadeByClient { codes, ..ended }));
            }
            Step::Codes { ended, more } => {
                codes.extend(ended);
                left = more;
            }
        }
    }
    Err(Refusal::new(ErrorCode::Unavailable).detail(format!(
        "The app still has access: {left} of its codes are neither kept nor ended yet. Repeat the request, which goes on with them."
    )))
}

/// Outcome of one commit of [`end_in_steps`].
enum Step {
    /// The app is ended: the number of its tokens, and the ids of the things that end with it.
    Ended(usize, MadeByClient),
    /// Only codes were kept or ended; the app still has access.
    Codes {
        ended: Vec<String>,
        /// Number of codes that still have to be kept or ended.
        more: usize,
    },
}

/// Adds the writes that end the app to the commit, or only those about codes if there is no room
/// for all codes.
async fn end_app_in(
    tx: &Transaction<'_>,
    by: &Principal<'_>,
    id: &ClientId,
    ending: &Ending,
) -> Result<Step, Refusal> {
    let namespace = &by.namespace.id;
    let key = connection_key(namespace, id);
    let found = tx.get::<Connection>(&key).await?;
    let connection = found.ok_or(ErrorCode::ClientNotFound)?;
    let ends_access = ending.access && connection.value.revoked_at.is_none();
    // The same request, sent again, ends what did not fit into an earlier commit; by then the app
    // itself has ended.
    if !ends_access && !ending.ends_things() {
        return Err(ErrorCode::ClientNotFound.into());
    }
    let mut made = AppResources::read(tx, &by.namespace.to_ref(), id).await?;
    if made.more_codes && !ending.kept_codes.is_nothing() {
        return Err(Refusal::new(ErrorCode::Unavailable).detail(
            "The vault has more enrolment codes than one request reads, so none can be kept: end codes first, or end the app with its codes.",
        ));
    }
    let ended = Ended::take(&mut made, id, ending, ends_access);
    let ids = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>();
    let is_open =
        |code: &&ValidCode| ends_access && (ending.keeps(code, id) || ending.ends_kept(code, id));
    let more = made.codes.iter().filter(is_open).count();
    if more > 0 {
        let codes = Ended {
            kept_codes: ended.kept_codes,
            codes: ended.codes,
            ..Ended::default()
        };
        let ended = ids(&mut codes.codes.iter().map(ValidCode::id));
        codes.write_in(tx, by).await?;
        return Ok(Step::Codes { ended, more });
    }
    let mut answer = MadeByClient {
        codes: ids(&mut ended.codes.iter().map(ValidCode::id)),
        machines: ids(&mut ended.machines.iter().map(|it| it.value.device_id.clone())),
        invitations: ids(&mut ended.invitations.iter().map(|it| it.value.id.clone())),
        webhooks: ended.webhooks.clone(),
        ..MadeByClient::default()
    };
    let mut revoked_tokens = 0;
    if ends_access {
        // Codes that depend on the app's consent end without a write.
        let dependent = made.codes.iter().filter(|code| code.depends_on(id));
        answer.codes.extend(dependent.map(ValidCode::id));
        // The number is only for the answer and the log. The tokens are not deleted: each check of
        // a token reads the connection, so this one write ends them all.
        revoked_tokens = count_live_tokens(by, id).await?;
        let change = Change::about(id)
            .with_before(json!({ "name": connection.value.name }))
            .with_after(after_entry(revoked_tokens, &answer.codes));
        let revision = connection.revision;
        tx.write(
            connection
                .value
                .ending_write(namespace, revision, tx.now())?,
        );
        by.write_audit(tx, "client.revoke", change)?;
    }
    ended.write_in(tx, by).await?;
    Ok(Step::Ended(revoked_tokens, answer))
}

/// Returns the part of the log entry that tells what ended with the app.
fn after_entry(revoked_tokens: usize, codes: &[String]) -> Value {
    if codes.is_empty() {
        json!({ "revoked_tokens": revoked_tokens })
    } else {
        let codes = &codes[..codes.len().min(MAX_LISTED)];
        json!({ "revoked_tokens": revoked_tokens, "ended_codes": codes })
    }
}

/// Counts the valid tokens of a client: the newest access and refresh token of each live grant, for
/// at most 10,000 grants. Access tokens that a refresh has replaced end too, but are not counted.
async fn count_live_tokens(by: &Principal<'_>, id: &ClientId) -> Result<usize, StoreError> {
    let records = &by.app.records;
    let partition = grants_partition(Some(&by.namespace.id));
    let (prefix, now) = (format!("{id}/"), by.app.clock.now());
    let mut after: Option<String> = None;
    let mut living = 0;
    for _ in 0..MAX_COUNT_PAGES {
        let grant_records = records
            .list_page(&partition, &prefix, after.as_deref(), MAX_PAGE)
            .await?;
        let mut keys = Vec::new();
        for record in &grant_records {
            let grant: Grant = record.read()?;
            if grant.is_alive(now) {
                keys.extend([token_key(&grant.refresh), token_key(&grant.access)]);
            }
        }
        for some in keys.chunks(MAX_KEYS) {
            living += records.get_many(some).await?.iter().flatten().count();
        }
        after = grant_records.last().map(|record| record.key.key.clone());
        if grant_records.len() < MAX_PAGE {
            break;
        }
    }
    Ok(living)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_room_for_what_fits_whole() {
        let mut room = Room { rows: 5 };
        let fits = [2, 2, 2, 1, 1].map(|rows| room.take(rows));
        assert_eq!(fits, [true, true, false, true, false]);
    }

    #[test]
    fn a_choice_takes_nothing_all_or_what_it_lists() {
        let listed = Choice::Listed(vec!["a".to_owned()]);
        let takes = |choice: &Choice| ["a", "b"].map(|id| choice.takes(id));
        assert_eq!(takes(&Choice::Nothing), [false, false]);
        assert_eq!(takes(&Choice::All), [true, true]);
        assert_eq!(takes(&listed), [true, false]);
    }
}

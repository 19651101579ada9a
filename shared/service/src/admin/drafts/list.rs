//! `GET …/drafts`: the drafts that a caller may see, oldest first.

use axum::http::StatusCode;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, Record};

use super::{is_visible, items};
use crate::admin::call::{Answer, Call, Items, Page};
use crate::drafts::standing;
use crate::error::{Code, Refusal};
use crate::http::json_answer;
use crate::model::Seen;
use crate::model::draft::{self, Authored, DraftRecord, Kind, State};
use crate::model::namespace::Namespace;

/// Most records of a partition that one request reads: a page may be short, and still have a `next`.
const MAX_READ: usize = 256;

/// Which drafts are asked for.
struct Wanted {
    /// `None`: all.
    state: Option<State>,
    /// `None`: all.
    kind: Option<Kind>,
}

/// Drafts that were read, in the order of their ids.
struct Read {
    drafts: Vec<DraftRecord>,
    /// The last id up to which nothing is left out, where there may be more behind it.
    end: Option<String>,
}

/// Lists drafts: those that wait, or those of `?state=`, of any kind or of `?kind=`.
pub(in crate::admin) async fn list(call: Call) -> Answer {
    let (namespace, _) = call.namespace()?;
    let wanted = Wanted::of(&call)?;
    let page = call.page()?;
    let read = if call.caller.role.publishes() {
        all(&call, &namespace, &wanted, &page).await?
    } else {
        own(&call, &namespace, &page).await?
    };
    let (mut shown, mut next) = (Vec::new(), read.end);
    for draft in standing(&call.app, &namespace, read.drafts).await? {
        if !wanted.has(&draft) || !is_visible(&call.caller, &draft) {
            continue;
        }
        if shown.len() == page.limit {
            // There is another one.
            next = shown.last().map(|last: &DraftRecord| last.id.to_string());
            break;
        }
        shown.push(draft);
    }
    let items = items(&call, shown).await?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

impl Wanted {
    /// `?state=` and `?kind=`; 422 for words that are none.
    fn of(call: &Call) -> Result<Self, Refusal> {
        let state = match call.query("state").as_deref() {
            None => Some(State::Pending),
            Some("all") => None,
            Some(word) => {
                let mut states = State::ALL.into_iter();
                let found = states.find(|state| state.as_str() == word);
                Some(found.ok_or(Code::ParameterInvalid)?)
            }
        };
        let kind = match call.query("kind") {
            None => None,
            Some(word) => Some(kind(&word).ok_or(Code::ParameterInvalid)?),
        };
        Ok(Self { state, kind })
    }

    fn has(&self, draft: &DraftRecord) -> bool {
        self.state.is_none_or(|state| draft.state == state)
            && self.kind.is_none_or(|kind| draft.kind() == kind)
    }
}

/// The kind that a word names.
pub(super) fn kind(word: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.as_str() == word)
}

/// Drafts of the namespace behind a page: the open ones, and the ended ones where those are asked for.
async fn all(
    call: &Call,
    namespace: &Namespace,
    wanted: &Wanted,
    page: &Page,
) -> Result<Read, StoreError> {
    let mut partitions = vec![draft::partition(&namespace.id)];
    if wanted.state != Some(State::Pending) {
        partitions.push(draft::ended_partition(&namespace.id));
    }
    let records = &call.app.records;
    let (mut found, mut end) = (Vec::new(), None::<String>);
    for partition in partitions {
        let read = records
            .list(&partition, "", page.after.as_deref(), MAX_READ)
            .await?;
        // Behind the last one of a full reading there may be more, so the others count up to there alone.
        if let Some(last) = read.last().filter(|_| read.len() == MAX_READ) {
            let last = last.key.key.clone();
            end = Some(match end {
                Some(end) => end.min(last),
                None => last,
            });
        }
        found.extend(read);
    }
    found.retain(|record| end.as_ref().is_none_or(|end| record.key.key <= *end));
    found.sort_by(|one, other| one.key.key.cmp(&other.key.key));
    // A draft that is ended between the readings is in both.
    found.dedup_by(|one, other| one.key.key == other.key.key);
    let drafts = found.iter().map(Record::read).collect::<Result<_, _>>()?;
    Ok(Read { drafts, end })
}

/// The caller's own drafts behind a page, open and ended.
async fn own(call: &Call, namespace: &Namespace, page: &Page) -> Result<Read, StoreError> {
    let prefix = format!("{}/", call.caller.user_id);
    let after = page.after.as_ref().map(|after| format!("{prefix}{after}"));
    let partition = draft::authored_partition(&namespace.id);
    let records = &call.app.records;
    let listed = records
        .list(&partition, &prefix, after.as_deref(), MAX_READ)
        .await?;
    let end = listed.last().filter(|_| listed.len() == MAX_READ);
    let end = end.map(|last| last.key.key[prefix.len()..].to_owned());
    let mut drafts = Vec::with_capacity(listed.len());
    for some in listed.chunks(MAX_KEYS / 2) {
        drafts.extend(of_index(call, &namespace.id, some).await?);
    }
    Ok(Read { drafts, end })
}

/// The drafts that these entries of an author's list name.
async fn of_index(
    call: &Call,
    namespace: &NamespaceId,
    index: &[Record],
) -> Result<Vec<DraftRecord>, StoreError> {
    let mut keys = Vec::with_capacity(2 * index.len());
    for entry in index {
        let id = entry.read::<Authored>()?.id;
        keys.push(draft::key(namespace, &id));
        keys.push(draft::ended_key(namespace, &id));
    }
    let mut drafts = Vec::new();
    for pair in call.app.records.get_many(&keys).await?.chunks(2) {
        let found = pair.iter().flatten().next();
        let seen = Seen::<DraftRecord>::read(found.cloned())?;
        drafts.extend(seen.map(|seen| seen.value));
    }
    Ok(drafts)
}

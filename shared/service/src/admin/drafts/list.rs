//! `GET …/drafts`: lists the drafts that the caller may see, oldest first.

use axum::http::StatusCode;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, Record};

use super::is_visible;
use crate::admin::call::{Answer, Call, Items, Page};
use crate::admin::principal::Principal;
use crate::drafts::resolve_states;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::Versioned;
use crate::model::draft::{self, AuthorEntry, DraftRecord, Kind, State};

/// Maximum number of records that one request reads per partition. So a page may be short and still
/// have a `next`.
const MAX_READ: usize = 256;

/// Query of a list of drafts: `?state=` and `?kind=`.
#[derive(Clone, Copy)]
pub(crate) struct DraftFilter {
    /// `None` for drafts in any state.
    pub(crate) state: Option<State>,
    /// `None` for drafts of any kind.
    pub(crate) kind: Option<Kind>,
}

/// Drafts that were read, in the order of their ids.
struct ReadDrafts {
    drafts: Vec<DraftRecord>,
    /// Id up to which the list is complete; `None` if no more drafts follow.
    end: Option<String>,
}

/// Lists the pending drafts of every kind; `?state=` and `?kind=` select others.
pub(in crate::admin) async fn list_drafts(call: Call) -> Answer {
    call.path_namespace()?;
    let filter = DraftFilter::from_query(&call)?;
    let page = call.page_params()?;
    let by = call.to_principal();
    let Items { items, next } = read_page(&by, filter, &page).await?;
    let items = super::to_api_drafts(&by, items).await?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Reads one page of the drafts that the caller may see, in their present state, oldest first.
pub(crate) async fn read_page(
    by: &Principal<'_>,
    wanted: DraftFilter,
    page: &Page,
) -> Result<Items<DraftRecord>, StoreError> {
    let read = if by.role.can_publish() {
        read_all(by, wanted, page).await?
    } else {
        read_own(by, page).await?
    };
    let (mut items, mut next) = (Vec::new(), read.end);
    for draft in resolve_states(by.app, by.namespace, read.drafts).await? {
        if !wanted.matches_draft(&draft) || !is_visible(by, &draft) {
            continue;
        }
        if items.len() == page.limit {
            // One more draft matches than the page holds, so the next page begins after the last
            // item.
            next = items.last().map(|last: &DraftRecord| last.id.to_string());
            break;
        }
        items.push(draft);
    }
    Ok(Items { items, next })
}

impl DraftFilter {
    /// Reads `?state=` and `?kind=`; fails with 422 for unknown words.
    fn from_query(call: &Call) -> Result<Self, Refusal> {
        let state = match call.query_param("state").as_deref() {
            None => Some(State::Pending),
            Some("all") => None,
            Some(word) => Some(word.parse().map_err(|_| ErrorCode::ParameterInvalid)?),
        };
        let kind = match call.query_param("kind") {
            None => None,
            Some(word) => Some(parse_kind(&word).ok_or(ErrorCode::ParameterInvalid)?),
        };
        Ok(Self { state, kind })
    }

    fn matches_draft(self, draft: &DraftRecord) -> bool {
        self.state.is_none_or(|state| draft.state == state)
            && self.kind.is_none_or(|kind| draft.kind() == kind)
    }
}

/// Parses the value of `?kind=`; `None` for an unknown kind.
pub(super) fn parse_kind(word: &str) -> Option<Kind> {
    word.parse().ok()
}

/// Reads drafts of the namespace after `page.after`: the open ones, and the ended ones if the
/// filter includes them.
async fn read_all(
    by: &Principal<'_>,
    wanted: DraftFilter,
    page: &Page,
) -> Result<ReadDrafts, StoreError> {
    let namespace = by.namespace;
    let mut partitions = vec![draft::drafts_partition(&namespace.id)];
    if wanted.state != Some(State::Pending) {
        partitions.push(draft::ended_partition(&namespace.id));
    }
    let records = &by.app.records;
    let (mut page_records, mut end) = (Vec::new(), None::<String>);
    for partition in partitions {
        let read = records
            .list_page(&partition, "", page.after.as_deref(), MAX_READ)
            .await?;
        // After the last record of a full read there may be more, so records of the other partition
        // count only up to the same id.
        if let Some(last) = read.last().filter(|_| read.len() == MAX_READ) {
            let last = last.key.key.clone();
            end = Some(match end {
                Some(end) => end.min(last),
                None => last,
            });
        }
        page_records.extend(read);
    }
    page_records.retain(|record| end.as_ref().is_none_or(|end| record.key.key <= *end));
    page_records.sort_by(|one, other| one.key.key.cmp(&other.key.key));
    // A draft that was ended between the two reads is in both partitions.
    page_records.dedup_by(|one, other| one.key.key == other.key.key);
    let drafts = page_records
        .iter()
        .map(Record::read)
        .collect::<Result<_, _>>()?;
    Ok(ReadDrafts { drafts, end })
}

/// Reads the caller's own drafts after `page.after`, open and ended.
async fn read_own(by: &Principal<'_>, page: &Page) -> Result<ReadDrafts, StoreError> {
    let (namespace, prefix) = (by.namespace, format!("{}/", by.user_id));
    let after = page.after.as_ref().map(|after| format!("{prefix}{after}"));
    let partition = draft::authored_partition(&namespace.id);
    let records = &by.app.records;
    let index_records = records
        .list_page(&partition, &prefix, after.as_deref(), MAX_READ)
        .await?;
    let end = index_records
        .last()
        .filter(|_| index_records.len() == MAX_READ);
    let end = end.map(|last| last.key.key[prefix.len()..].to_owned());
    // Two keys per draft, under which it is stored while open and after its end: the index does not
    // tell which.
    let mut drafts = Vec::with_capacity(index_records.len());
    for some in index_records.chunks(MAX_KEYS / 2) {
        drafts.extend(read_indexed(by, some).await?);
    }
    Ok(ReadDrafts { drafts, end })
}

/// Reads the drafts that these entries of an author's index refer to.
async fn read_indexed(
    by: &Principal<'_>,
    index: &[Record],
) -> Result<Vec<DraftRecord>, StoreError> {
    let namespace = &by.namespace.id;
    let mut keys = Vec::with_capacity(2 * index.len());
    for entry in index {
        let id = entry.read::<AuthorEntry>()?.id;
        keys.push(draft::draft_key(namespace, &id));
        keys.push(draft::ended_key(namespace, &id));
    }
    let mut drafts = Vec::new();
    for pair in by.app.records.get_many(&keys).await?.chunks(2) {
        let open_or_ended = pair.iter().flatten().next();
        let seen = Versioned::<DraftRecord>::read(open_or_ended.cloned())?;
        drafts.extend(seen.map(|seen| seen.value));
    }
    Ok(drafts)
}

//! The full queue of waiting devices: chooses the entry that gives way to a newcomer, so that one
//! source cannot keep a vault closed to new machines.

use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, Record, RecordKey, When, Write};

use crate::error::{ErrorCode, Refusal};
use crate::model::device::{self, Device, Pending};
use crate::model::limits::Source;
use crate::model::namespace::{self, MAX_PENDING, Queue};
use crate::transaction::Transaction;

/// Seconds after which a waiting device gives way to a newcomer of any source: a day.
const OLD_SECONDS: i64 = 24 * 3600;
/// Share of one source in a full queue, in devices. A source with fewer gets the place of another
/// device for one more; a source with more than its share gives one up.
const SHARE: usize = 3;

/// Puts a newcomer, whose writes are in the transaction already, into a full queue, in place of the
/// entry that gives way. Fails with 409 when no entry does.
///
/// The queue's record is read first and written in the same commit, so two newcomers cannot both
/// decide by the same state: the shares hold however many come at once. A key that gave way is
/// unknown again, and may enrol afresh.
pub(super) async fn displace_waiting(
    tx: &Transaction<'_>,
    slug: &Slug,
    newcomer: &Device,
    source: &Source,
) -> Result<(), Refusal> {
    let queue_key = namespace::queue_key(slug);
    let Some(queue) = tx.records.get_one(&queue_key).await? else {
        return Err(tx.conflict().into());
    };
    // A place became free since the commit failed: try the normal way again.
    if queue.read::<Queue>()?.pending < MAX_PENDING {
        return Err(tx.conflict().into());
    }
    let partition = device::pending_partition(slug);
    // More than the queue can hold, so one list has all of it.
    let waiting = tx.records.list_page(&partition, "", None, 100).await?;
    let entries: Vec<Pending> = waiting.iter().map(Record::read).collect::<Result<_, _>>()?;
    let displaced_index = choose_displaced(&entries, source, newcomer.enrolled_at);
    let displaced_index = displaced_index.ok_or(ErrorCode::PendingQueueFull)?;
    let (Some(entry), Some(record)) = (entries.get(displaced_index), waiting.get(displaced_index))
    else {
        return Err(tx.conflict().into());
    };
    let key = device::device_key(slug, &entry.public_key.to_string());
    let Some(device_record) = tx.records.get_one(&key).await? else {
        return Err(tx.conflict().into());
    };
    // The count stays the same, since one leaves and one comes. The write only makes the commit
    // fail where the queue has changed.
    let unchanged = When::At(queue.revision);
    tx.write(Write::put(queue_key, queue.document.clone(), unchanged));
    tx.write(Write::delete(record.key.clone(), When::At(record.revision)));
    tx.write(Write::delete(key, When::At(device_record.revision)));
    tx.write_all(forget_writes(slug, entry, &record.key));
    Ok(())
}

/// Returns the writes that remove the other records of a device that gives way.
fn forget_writes(slug: &Slug, entry: &Pending, pending: &RecordKey) -> [Write; 2] {
    [
        Write::delete(device::id_key(slug, &pending.key), When::Any),
        Write::delete(
            device::seen_key(slug, &entry.public_key.to_string()),
            When::Any,
        ),
    ]
}

/// Returns the write that lists a device as waiting.
pub(super) fn waiting_entry(
    slug: &Slug,
    device: &Device,
    source: &Source,
) -> Result<Write, StoreError> {
    let entry = Pending {
        public_key: device.public_key,
        source: source.clone(),
        enrolled_at: device.enrolled_at,
    };
    Ok(Write::put(
        device::pending_key(slug, &device.device_id),
        Document::from_value(&entry)?,
        When::Any,
    ))
}

/// Chooses the entry of a full queue that gives way to a newcomer: the oldest of those over a day
/// old, else the oldest of the source that has most entries, if that is more than its share. `None`
/// when there is none, or when the newcomer's source has its share already.
fn choose_displaced(entries: &[Pending], newcomer: &Source, now: Timestamp) -> Option<usize> {
    let count = |source: &Source| {
        entries
            .iter()
            .filter(|entry| entry.source == *source)
            .count()
    };
    // First, so that a source which has its share cannot push out old entries either.
    if count(newcomer) >= SHARE {
        return None;
    }
    let oldest = |entries: &mut dyn Iterator<Item = (usize, &Pending)>| {
        let oldest = entries.min_by_key(|(_, entry)| entry.enrolled_at);
        oldest.map(|(at, _)| at)
    };
    let is_old = |entry: &Pending| entry.enrolled_at.plus_seconds(OLD_SECONDS) < now;
    let mut old = entries.iter().enumerate().filter(|(_, held)| is_old(held));
    if let Some(at) = oldest(&mut old) {
        return Some(at);
    }
    let most = entries.iter().map(|entry| count(&entry.source)).max()?;
    let mut crowd = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| most > SHARE && count(&entry.source) == most);
    oldest(&mut crowd)
}

#[cfg(test)]
mod tests {
    use vault_format::keys::SecretKey;

    use super::*;

    const NOW: i64 = 1_795_219_200;

    /// Entries by source and by how many seconds ago they came.
    fn queue(entries: &[(&str, i64)]) -> Vec<Pending> {
        let entry = |(source, ago): &(&str, i64)| Pending {
            public_key: SecretKey::from_seed([1; 32]).public(),
            source: Source::of(source.parse().ok()),
            enrolled_at: Timestamp::from_unix(NOW - ago),
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn who_gives_way() {
        let day = OLD_SECONDS;
        let (a, b, c, d) = ("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2");
        for (why, entries, newcomer, leaves) in [
            (
                "the oldest of the crowd",
                vec![(a, 9), (b, 99), (a, 8), (a, 7), (a, 10)],
                b,
                Some(4),
            ),
            (
                "three are no crowd",
                vec![(a, 9), (a, 8), (a, 7), (b, 5)],
                b,
                None,
            ),
            (
                "a crowd does not grow",
                vec![(a, 9), (a, 8), (a, 7), (a, 6)],
                a,
                None,
            ),
            (
                "one network is one source",
                vec![(c, 9), (d, 8), (c, 7), (d, 6)],
                d,
                None,
            ),
            (
                "a network gives way as one",
                vec![(c, 9), (d, 11), (c, 7), (d, 6)],
                a,
                Some(1),
            ),
            (
                "the old one first, crowd or not",
                vec![(a, 9), (a, 8), (a, 7), (a, 6), (b, day + 1)],
                b,
                Some(4),
            ),
            (
                "the oldest of the old",
                vec![(a, day + 1), (b, day + 2), (c, 5)],
                c,
                Some(1),
            ),
            (
                "a day is not over a day",
                vec![(a, day), (b, 3), (b, 2)],
                c,
                None,
            ),
            (
                "a share is a share, even where others are old",
                vec![(a, 1), (a, 2), (a, 3), (b, day + 1)],
                a,
                None,
            ),
            (
                "the larger crowd",
                vec![
                    (a, 90),
                    (a, 8),
                    (a, 7),
                    (a, 6),
                    (b, 5),
                    (b, 5),
                    (b, 6),
                    (b, 4),
                    (b, 3),
                ],
                c,
                Some(6),
            ),
        ] {
            let newcomer = Source::of(newcomer.parse().ok());
            let found = choose_displaced(&queue(&entries), &newcomer, Timestamp::from_unix(NOW));
            assert_eq!(found, leaves, "{why}");
        }
    }
}

//! DynamoDB does what the memory double does, step by step, for commits that nobody thought of.

use std::sync::Arc;

use serde_json::{Value, json};
use vault_aws::Aws;
use vault_format::time::Timestamp;
use vault_store::clock::Clock;
use vault_store::random::{Random, SystemRandom, random_bytes};
use vault_store::records::{Commit, Document, Record, RecordKey, Records, When, Write};
use vault_testing::SeededRandom;
use vault_testing::TestClock;
use vault_testing::aws;
use vault_testing::memory::Memory;
use vault_testing::servers::or_say_why;

/// Numbers from a seed.
struct Dice(SeededRandom);

impl Dice {
    fn below(&self, end: u64) -> u64 {
        u64::from_be_bytes(random_bytes(&self.0 as &dyn Random)) % end
    }

    fn pick<T: Clone>(&self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).expect("small")].clone()
    }
}

/// A condition in words that hold in both stores, whose revisions differ.
#[derive(Clone, Copy, Debug)]
enum Demand {
    Any,
    Absent,
    Current,
    Older,
}

/// One write in the same words.
#[derive(Clone, Debug)]
enum Step {
    Put(Value, Option<Timestamp>, Demand),
    Delete(Demand),
    Check(Demand),
    Count(String, i64, i64, i64, Option<Timestamp>),
}

fn step(dice: &Dice, now: Timestamp) -> Step {
    let demand = dice.pick(&[
        Demand::Any,
        Demand::Any,
        Demand::Absent,
        Demand::Current,
        Demand::Older,
    ]);
    let ends = [
        None,
        None,
        Some(now),
        Some(now.plus_seconds(2)),
        Some(now.plus_seconds(50)),
    ];
    let values = [
        json!({}),
        json!({"n": 3}),
        json!({"n": -1, "m": 7, "text": "7"}),
        json!({"n": "3"}),
        json!({"n": 1.0, "deep": {"n": 1}}),
        json!({"n": null, "nn": 2, "Big": 1}),
    ];
    match dice.below(10) {
        0..=2 => Step::Put(dice.pick(&values), dice.pick(&ends), demand),
        3 => Step::Delete(demand),
        4 => Step::Check(demand),
        _ => Step::Count(
            dice.pick(&["n", "n", "m"]).to_owned(),
            dice.pick(&[1, 1, 2, -1, 0]),
            dice.pick(&[0, 0, -3, 1]),
            dice.pick(&[4, 9, 1]),
            dice.pick(&ends),
        ),
    }
}

/// The write that the step means in a store that holds `held`.
fn write(key: &RecordKey, step: &Step, held: Option<&Record>) -> Write {
    let when = |demand: Demand| match demand {
        Demand::Any => When::Any,
        Demand::Absent => When::Absent,
        Demand::Current => When::At(held.map_or(1, |record| record.revision)),
        Demand::Older => When::At(held.map_or(1, |record| record.revision - 1)),
    };
    match step.clone() {
        Step::Put(value, expires_at, demand) => Write::Put {
            key: key.clone(),
            document: Document::from_value(&value).expect("a small object"),
            expires_at,
            when: when(demand),
        },
        Step::Delete(demand) => Write::delete(key.clone(), when(demand)),
        Step::Check(demand) => Write::check(key.clone(), when(demand)),
        Step::Count(field, by, min, max, expires_at) => Write::Count {
            key: key.clone(),
            field,
            by,
            min,
            max,
            expires_at,
        },
    }
}

/// A record without its revision.
fn content(record: Option<Record>) -> Option<(String, Option<Timestamp>, Value)> {
    record.map(|r| (r.key.key.clone(), r.expires_at, r.read().expect("reads")))
}

#[tokio::test]
async fn random_commits_end_as_in_memory() {
    let Some(place) = or_say_why(aws::place().await) else {
        return;
    };
    let clock = Arc::new(TestClock::default());
    let random = Arc::new(SystemRandom);
    let aws = Aws::new(&place.config, &place.settings, clock.clone(), random);
    let stores: [Arc<dyn Records>; 2] = [Arc::new(Memory::new(clock.clone())), aws.records()];
    for seed in 0..4_u64 {
        let dice = Dice(SeededRandom::new(seed));
        let keys: Vec<RecordKey> = (0..4)
            .map(|n| RecordKey::new(format!("seed {seed}"), format!("k{n}")))
            .collect();
        let mut last = [0; 4];
        for round in 0..120 {
            let steps: Vec<(usize, Step)> = (0..keys.len())
                .filter(|_| dice.below(2) == 0)
                .map(|index| (index, step(&dice, clock.now())))
                .collect();
            let at = format!("seed {seed}, round {round}: {steps:?}");
            let mut ends = Vec::new();
            for store in &stores {
                let held = store.get_many(&keys).await.expect(&at);
                let writes = steps
                    .iter()
                    .map(|(index, step)| write(&keys[*index], step, held[*index].as_ref()));
                let ended = store.commit_writes(writes.collect()).await.expect(&at);
                let failed = match ended {
                    Commit::Done(_) => None,
                    Commit::Failed { index, found } => Some((index, content(found))),
                };
                let listed = store
                    .list_page(&keys[0].partition, "", None, 9)
                    .await
                    .expect(&at);
                let read = store.get_many(&keys).await.expect(&at);
                let there: Vec<Record> = read.iter().flatten().cloned().collect();
                assert_eq!(listed, there, "{at}");
                ends.push((failed, read));
            }
            // A revision that was once read never stands for another state.
            for (last, now) in last.iter_mut().zip(&ends[1].1) {
                let revision = now.as_ref().map_or(*last, |record| record.revision);
                assert!(revision >= *last, "{at}: {now:?} after {last}");
                *last = revision;
            }
            let mut ends = ends
                .into_iter()
                .map(|(failed, read)| (failed, read.into_iter().map(content).collect::<Vec<_>>()));
            assert_eq!(ends.next(), ends.next(), "{at}");
            clock.advance(i64::try_from(dice.below(3)).expect("small"));
        }
    }
}

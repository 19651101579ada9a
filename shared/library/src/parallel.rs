//! Work on many items at once, on all cores.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Items that a thread takes at a time, at most: few enough that none is left alone with much at the end.
const PIECE: usize = 64;
/// Items for which one more thread pays, where each takes microseconds.
const FEW: usize = 16;

/// Runs a function over slices of the items, on several threads, and gives the answers in order. Who is done takes the
/// next slice, so that a thread that the machine holds up holds up nobody else.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    let threads = match items.len() / FEW {
        0 => 1,
        more => cores().min(more + 1),
    };
    run(
        items,
        threads,
        items.len().div_ceil(threads).min(PIECE),
        work,
    )
}

/// The same for items of which each takes long enough to be handed out alone.
pub(crate) fn one_by_one<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let answers = run(items, cores(), 1, |piece| {
        piece.iter().map(&work).collect::<Vec<_>>()
    });
    answers.into_iter().flatten().collect()
}

/// The answer of a thread that has ended; its panic goes on here.
pub(crate) fn joined<T>(ended: std::thread::Result<T>) -> T {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

fn run<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    piece: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    if threads <= 1 {
        return vec![work(items)];
    }
    let pieces: Vec<&[T]> = items.chunks(piece.max(1)).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = pieces.get(at) else {
                return done;
            };
            done.push((at, work(piece)));
        }
    };
    let mut answers: Vec<(usize, R)> = std::thread::scope(|scope| {
        let running: Vec<_> = (1..threads.min(pieces.len()))
            .map(|_| scope.spawn(take))
            .collect();
        let mut answers = take();
        for thread in running {
            answers.extend(joined(thread.join()));
        }
        answers
    });
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_the_order_of_the_items() {
        for count in [0, 1, 15, 16, 17, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let doubled: Vec<usize> = items.iter().map(|item| item * 2).collect();
            assert_eq!(one_by_one(&items, |item| item * 2), doubled);
            let pieces = in_parallel(&items, |piece| {
                piece.iter().map(|item| item * 2).collect::<Vec<_>>()
            });
            assert_eq!(pieces.concat(), doubled);
        }
    }
}

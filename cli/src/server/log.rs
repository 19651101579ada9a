//! The log of `serve`: lines are gathered in memory and written by a thread of their own, several at a time.
//!
//! A request does not wait for the log's reader, and many lines cost one system call. Nothing is dropped: who finds the
//! room taken waits for the thread, and what waits is written when [`Written`] is dropped, at a stop or while a panic
//! unwinds. A killed process loses what it said within the last [`GATHER`].

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// How long a line waits for others at most; warnings and errors do not wait.
const GATHER: Duration = Duration::from_millis(10);
/// Bytes that are written without waiting for more.
const ENOUGH: usize = 16 * 1024;
/// Bytes that may wait.
const ROOM: usize = 1024 * 1024;

/// Where the lines go in; whole lines, in one order.
#[derive(Debug)]
pub struct Log<W>(Arc<Shared<W>>);

/// Writes what waits when dropped; from then on lines are written where they are said.
#[derive(Debug)]
pub struct Written<W> {
    shared: Arc<Shared<W>>,
    thread: Option<JoinHandle<()>>,
}

impl<W> Drop for Written<W> {
    fn drop(&mut self) {
        self.shared.held().ended = true;
        self.shared.more.notify_all();
        if let Some(thread) = self.thread.take() {
            // It never panics by itself, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Shared<W> {
    held: Mutex<Held>,
    more: Condvar,
    less: Condvar,
    sink: Mutex<W>,
}

#[derive(Debug, Default)]
struct Held {
    lines: Vec<u8>,
    urgent: bool,
    ended: bool,
}

/// A log into `sink`. Fails when the system gives no thread.
pub fn start<W: Write + Send + 'static>(sink: W) -> io::Result<(Log<W>, Written<W>)> {
    let shared = Arc::new(Shared {
        held: Mutex::default(),
        more: Condvar::new(),
        less: Condvar::new(),
        sink: Mutex::new(sink),
    });
    let writing = Arc::clone(&shared);
    let thread = thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || writing.write_until_ended())?;
    let written = Written {
        shared: Arc::clone(&shared),
        thread: Some(thread),
    };
    Ok((Log(shared), written))
}

impl<W> Shared<W> {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> Shared<W> {
    fn put(&self, line: &[u8], urgent: bool) {
        let held = self.held();
        let mut held = self
            .less
            .wait_while(held, |held| {
                !held.ended && !held.lines.is_empty() && held.lines.len() + line.len() > ROOM
            })
            .unwrap_or_else(PoisonError::into_inner);
        if held.ended {
            drop(held);
            self.write(line);
            return;
        }
        let before = held.lines.len();
        held.lines.extend_from_slice(line);
        held.urgent |= urgent;
        // The thread is woken once for all that gathers meanwhile.
        if before == 0 || urgent || (before < ENOUGH && held.lines.len() >= ENOUGH) {
            self.more.notify_one();
        }
    }

    fn write_until_ended(&self) {
        let mut lines = Vec::new();
        let mut held = self.held();
        loop {
            held = self
                .more
                .wait_while(held, |held| held.lines.is_empty() && !held.ended)
                .unwrap_or_else(PoisonError::into_inner);
            held = self
                .more
                .wait_timeout_while(held, GATHER, |held| {
                    !held.urgent && !held.ended && held.lines.len() < ENOUGH
                })
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if held.lines.is_empty() {
                return;
            }
            mem::swap(&mut held.lines, &mut lines);
            held.urgent = false;
            drop(held);
            self.less.notify_all();
            self.write(&lines);
            lines.clear();
            // A burst must not keep its room for ever.
            lines.shrink_to(2 * ENOUGH);
            held = self.held();
        }
    }

    fn write(&self, lines: &[u8]) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        // A log that nobody takes stops no service, and there is no other place to say so.
        let _ = sink.write_all(lines).and_then(|()| sink.flush());
    }
}

impl<'w, W: Write + 'static> MakeWriter<'w> for Log<W> {
    type Writer = Line<'w, W>;

    fn make_writer(&'w self) -> Self::Writer {
        Line {
            log: &self.0,
            urgent: true,
        }
    }

    fn make_writer_for(&'w self, event: &Metadata<'_>) -> Self::Writer {
        Line {
            log: &self.0,
            urgent: *event.level() <= Level::WARN,
        }
    }
}

/// One line on its way in; it comes in one piece.
#[derive(Debug)]
pub struct Line<'w, W> {
    log: &'w Shared<W>,
    urgent: bool,
}

impl<W: Write> Write for Line<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.log.put(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Counts how often it is written to; each writing waits to be let through where there is a gate.
    #[derive(Clone, Debug, Default)]
    struct Sink {
        written: Arc<Mutex<(Vec<u8>, usize)>>,
        gate: Option<Arc<Mutex<mpsc::Receiver<()>>>>,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(gate) = &self.gate {
                let _ = gate.lock().unwrap().recv();
            }
            let mut written = self.written.lock().unwrap();
            written.0.extend_from_slice(bytes);
            written.1 += 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.written.lock().unwrap().0.clone()).unwrap()
        }
    }

    fn say(log: &Log<Sink>, line: &str, urgent: bool) {
        let mut line_out = Line {
            log: &log.0,
            urgent,
        };
        line_out.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn every_line_of_every_thread_is_written_whole_and_in_order() {
        let sink = Sink::default();
        let (log, written) = start(sink.clone()).unwrap();
        let rest = "x".repeat(300);
        thread::scope(|scope| {
            for speaker in 0..4 {
                let (log, rest) = (&log, &rest);
                scope.spawn(move || {
                    for number in 0..2_000 {
                        say(
                            log,
                            &format!("{speaker} {number} {rest}\n"),
                            number % 500 == 7,
                        );
                    }
                });
            }
        });
        drop(written);
        let mut next = [0; 4];
        for line in sink.text().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let speaker: usize = words[0].parse().unwrap();
            assert_eq!(words[1..], [next[speaker].to_string(), rest.clone()]);
            next[speaker] += 1;
        }
        assert_eq!(next, [2_000; 4]);
        assert!(sink.written.lock().unwrap().1 < 8_000, "lines are gathered");
    }

    #[test]
    fn a_line_after_the_end_is_written_where_it_is_said() {
        let sink = Sink::default();
        let (log, written) = start(sink.clone()).unwrap();
        say(&log, "before\n", false);
        drop(written);
        assert_eq!(sink.text(), "before\n");
        say(&log, "after\n", false);
        assert_eq!(sink.text(), "before\nafter\n");
    }

    #[test]
    fn a_panic_loses_nothing() {
        let sink = Sink::default();
        let inner = sink.clone();
        let ended = std::panic::catch_unwind(move || {
            let (log, _written) = start(inner).unwrap();
            say(&log, "said\n", false);
            std::panic::resume_unwind(Box::new("the service ended badly"));
        });
        assert!(ended.is_err());
        assert_eq!(sink.text(), "said\n");
    }

    #[test]
    fn what_waits_is_bounded_and_a_reader_that_stalls_loses_no_line() {
        let (open, gate) = mpsc::channel();
        let sink = Sink {
            gate: Some(Arc::new(Mutex::new(gate))),
            ..Sink::default()
        };
        let (log, written) = start(sink.clone()).unwrap();
        let line = format!("{}\n", "x".repeat(65_535));
        let lines = 3 * ROOM / line.len();
        thread::scope(|scope| {
            let speaker = scope.spawn(|| {
                for _ in 0..lines {
                    say(&log, &line, false);
                    assert!(log.0.held().lines.len() <= ROOM);
                }
            });
            // Nothing is let through: the speaker fills the room that there is, and waits.
            while log.0.held().lines.len() + line.len() <= ROOM {
                thread::yield_now();
            }
            assert!(!speaker.is_finished());
            drop(open);
        });
        drop(written);
        assert_eq!(sink.text().len(), lines * line.len());
    }
}

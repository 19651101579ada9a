//! One line a step.

use std::time::{Duration, Instant};

use crate::web::Failure;

/// What was walked so far.
#[derive(Default)]
pub struct Report {
    failed: bool,
}

impl Report {
    /// Runs a step and tells how it went. `None` when it failed: the walk ends there.
    pub async fn step<T>(
        &mut self,
        name: &str,
        work: impl Future<Output = Result<(T, String), Failure>>,
    ) -> Option<T> {
        let begun = now();
        let done = work.await;
        let passed = begun.elapsed();
        match done {
            Ok((value, note)) => {
                line("ok", name, Some(passed), &note);
                Some(value)
            }
            Err(failure) => {
                self.failed = true;
                line("failed", name, Some(passed), "");
                say(&format!("        expected  {}", failure.expected));
                say(&format!("        came      {}", failure.came));
                None
            }
        }
    }

    /// Notes a failure that no step told.
    pub fn fail(&mut self, why: &str) {
        self.failed = true;
        line("failed", "walk", None, why);
    }

    /// Whether a step failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }
}

/// Something that was not walked, and why.
pub fn left_out(name: &str, why: &str) {
    line("left out", name, None, why);
}

fn line(state: &str, name: &str, passed: Option<Duration>, note: &str) {
    let passed = passed.map_or_else(String::new, |passed| format!("{} ms", passed.as_millis()));
    say(format!("{state:<9} {name:<24} {passed:>9}  {note}").trim_end());
}

/// A line on standard output; a reader that went away is no reason to stop before the clean-up.
pub fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a step is told with the time that really passed"
)]
fn now() -> Instant {
    Instant::now()
}

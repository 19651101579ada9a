//! Progress bars and questions on a terminal.
//!
//! [`Interaction`] owns all bars and asks all questions, so that no bar is drawn over a question.
//! Texts are fitted to the width of the terminal: questions and options break between words, bars
//! are cut.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use inquire::{InquireError, list_option::ListOption};
use zeroize::Zeroizing;

use super::width::{Margins, shorten_text, text_width, wrap_words};
use crate::text::{clean, for_terminal};

/// Maximum length of an option, in characters.
const MAX_OPTION_CHARS: usize = 400;
/// Maximum length of the text of a bar, in characters.
const MAX_LABEL_CHARS: usize = 200;
/// Columns that the mark in front of a question or an option takes.
const MARK: usize = 2;
/// Columns that the box in front of an option takes, if several options can be ticked.
const TICK_BOX: usize = 4;
/// Columns kept free behind a question: for the default, such as `(y/N)`, and the beginning of the
/// answer.
const ANSWER: usize = 10;

/// The result of a question; an error if the user cancels it or the terminal fails.
pub type Answer<T> = Result<T, InquireError>;

/// Returns whether the user cancelled the question with Escape or Ctrl-C.
pub const fn is_cancelled(error: &InquireError) -> bool {
    matches!(
        error,
        InquireError::OperationCanceled | InquireError::OperationInterrupted
    )
}

/// The progress bars and questions of this process. Clones share the bars.
#[derive(Clone)]
pub struct Interaction {
    bars: MultiProgress,
    live_bars: Arc<AtomicUsize>,
    animate: bool,
    columns: usize,
}

/// The options of a question to which several answers can be given.
pub struct Choices<'a> {
    /// The options from which the user chooses, each shown on a line.
    pub options: &'a [String],
    /// Whether all options are ticked when the question appears, so that Enter chooses all.
    pub ticked: bool,
    /// The line below the options that explains the keys.
    pub help: &'a str,
    /// Whether a long option is shortened to one line instead of wrapped. Set it if the end of an
    /// option is only an explanation.
    pub cut: bool,
}

impl Interaction {
    /// Creates the bars and questions for a terminal with this many columns; `None` means no limit.
    /// Bars are drawn only if `animate` is set.
    pub fn new(animate: bool, columns: Option<usize>) -> Self {
        let target = if animate {
            ProgressDrawTarget::stderr_with_hz(15)
        } else {
            ProgressDrawTarget::hidden()
        };
        Self {
            bars: MultiProgress::with_draw_target(target),
            live_bars: Arc::default(),
            animate,
            // The last column stays free: some terminals break a line that fills it.
            columns: columns.map_or(usize::MAX, |columns| columns.saturating_sub(1)),
        }
    }

    /// Shows a bar over `total` steps if a person watches standard error.
    pub fn start_bar(&self, total: u64, label: &'static str) -> Bar {
        // `wide_msg` is cut at the width of the terminal. A bar that wraps would leave lines
        // behind.
        let template = "{prefix:>10} [{bar:30}] {pos}/{len} {wide_msg}";
        let bar = self.add_bar(Some(total), template);
        bar.inner.set_prefix(label);
        bar
    }

    /// Shows a spinner for a wait of unknown length if a person watches standard error.
    pub fn start_spinner(&self, label: &str) -> Bar {
        let bar = self.add_bar(None, "{spinner} {wide_msg}");
        bar.set_message(label);
        if self.animate {
            bar.inner.enable_steady_tick(Duration::from_millis(100));
        }
        bar
    }

    #[expect(clippy::disallowed_methods, reason = "this type owns all bars")]
    fn add_bar(&self, total: Option<u64>, template: &str) -> Bar {
        let inner = if self.animate {
            let hidden = ProgressDrawTarget::hidden();
            // Hidden until its style is set, or the first line would have the default style.
            let bar = ProgressBar::with_draw_target(total, hidden);
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━╸ "));
            }
            self.bars.add(bar)
        } else {
            ProgressBar::hidden()
        };
        self.live_bars.fetch_add(1, Ordering::Relaxed);
        Bar {
            inner,
            live_bars: Arc::clone(&self.live_bars),
        }
    }

    /// Removes all bars from the screen, runs a step that writes or asks, and draws them again.
    pub fn without_bars<T>(&self, step: impl FnOnce() -> T) -> T {
        // Without a bar there is nothing to redraw, and most lines are written without one.
        if self.animate && self.live_bars.load(Ordering::Relaxed) > 0 {
            self.bars.suspend(step)
        } else {
            step()
        }
    }

    /// Asks yes or no; Enter gives the default.
    #[expect(clippy::disallowed_methods, reason = "this type asks all questions")]
    pub fn ask_yes_or_no(&self, question: &str, default: bool) -> Answer<bool> {
        let question = self.wrap_question(question);
        self.without_bars(|| {
            inquire::Confirm::new(&question)
                .with_default(default)
                .prompt()
        })
    }

    /// Asks for a line of text, which may be empty, and returns it as it was typed.
    #[expect(clippy::disallowed_methods, reason = "this type asks all questions")]
    pub fn ask_line(&self, question: &str) -> Answer<String> {
        let question = self.wrap_question(question);
        self.without_bars(|| inquire::Text::new(&question).prompt())
    }

    /// Asks for an existing secret, once.
    #[expect(clippy::disallowed_methods, reason = "this type asks all questions")]
    pub fn ask_secret(&self, question: &str) -> Answer<Zeroizing<String>> {
        let question = self.wrap_question(question);
        let prompt = inquire::Password::new(&question)
            // A wrong secret opens nothing, so there is no need to ask twice.
            .without_confirmation();
        self.without_bars(|| prompt.prompt()).map(Zeroizing::new)
    }

    /// Asks twice for a new secret of at least eight characters.
    #[expect(clippy::disallowed_methods, reason = "this type asks all questions")]
    pub fn ask_new_secret(&self, question: &str) -> Answer<Zeroizing<String>> {
        let question = self.wrap_question(question);
        let prompt = inquire::Password::new(&question)
            .with_custom_confirmation_message("Repeat it:")
            .with_validator(inquire::min_length!(8, "at least 8 characters"));
        self.without_bars(|| prompt.prompt()).map(Zeroizing::new)
    }

    /// Asks for one of several options and returns its index.
    #[expect(clippy::disallowed_methods, reason = "this type asks all questions")]
    pub fn choose_option(&self, question: &str, options: &[String]) -> Answer<usize> {
        let question = self.wrap_question(question);
        let lines = options.iter().map(|option| self.wrap_option(option, MARK));
        let answer = |chosen: ListOption<&String>| {
            self.wrap_answer(&question, &clean_option(&options[chosen.index]))
        };
        let prompt = inquire::Select::new(&question, lines.collect()).with_formatter(&answer);
        let chosen = self.without_bars(|| prompt.raw_prompt())?;
        Ok(chosen.index)
    }

    /// Asks for several options and returns their indexes. Text after two spaces in an option
    /// explains it, and is left out of the answer that stays on the screen.
    #[expect(clippy::disallowed_methods, reason = "this type asks all questions")]
    pub fn choose_options(&self, question: &str, choices: &Choices<'_>) -> Answer<Vec<usize>> {
        const BOTH: usize = MARK + TICK_BOX;
        let Choices { options, cut, .. } = choices;
        let question = self.wrap_question(question);
        let help = self.wrap_help(choices.help);
        let lines = options.iter().map(|option| {
            if *cut {
                shorten_text(&clean_option(option), self.columns.saturating_sub(BOTH))
            } else {
                self.wrap_option(option, BOTH)
            }
        });
        let all: Vec<usize> = (0..options.len()).filter(|_| choices.ticked).collect();
        let answer = |chosen: &[ListOption<&String>]| {
            let names = chosen.iter().map(|chosen| {
                let line = clean_option(&options[chosen.index]);
                line.split_once("  ")
                    .map_or_else(|| line.clone(), |(name, _)| name.to_owned())
            });
            self.wrap_answer(&question, &names.collect::<Vec<_>>().join(", "))
        };
        let prompt = inquire::MultiSelect::new(&question, lines.collect())
            .with_default(&all)
            .with_page_size(15)
            .with_help_message(&help)
            .with_formatter(&answer);
        let chosen = self.without_bars(|| prompt.raw_prompt())?;
        Ok(chosen.into_iter().map(|option| option.index).collect())
    }

    fn wrap_question(&self, question: &str) -> String {
        let margins = Margins {
            start: MARK,
            indent: MARK,
            end: ANSWER,
        };
        wrap_words(&for_terminal(question), self.columns, margins)
    }

    /// Wraps an option that starts `before` columns from the left edge.
    fn wrap_option(&self, option: &str, before: usize) -> String {
        let margins = Margins {
            start: before,
            indent: before,
            end: 0,
        };
        wrap_words(&clean_option(option), self.columns, margins)
    }

    /// Wraps an answer. Its first line continues the last line of the question.
    fn wrap_answer(&self, question: &str, answer: &str) -> String {
        let last = question.rsplit('\n').next().unwrap_or_default();
        let mark = if last.len() == question.len() {
            MARK
        } else {
            0
        };
        let margins = Margins {
            start: mark + text_width(last) + 1,
            indent: MARK,
            end: 0,
        };
        wrap_words(answer, self.columns, margins)
    }

    /// Wraps the line that explains the keys, which is printed in brackets.
    fn wrap_help(&self, help: &str) -> String {
        let margins = Margins {
            start: 1,
            indent: 1,
            end: 1,
        };
        wrap_words(help, self.columns, margins)
    }
}

impl fmt::Debug for Interaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Interaction");
        fields
            .field("animate", &self.animate)
            .finish_non_exhaustive()
    }
}

/// A bar or spinner on the terminal. It disappears when it is dropped, so that an error is never
/// printed into its line.
#[derive(Debug)]
pub struct Bar {
    inner: ProgressBar,
    live_bars: Arc<AtomicUsize>,
}

impl Bar {
    /// Counts a number of steps as done.
    pub fn advance(&self, steps: u64) {
        self.inner.inc(steps);
    }

    /// Sets the text beside the bar.
    pub fn set_message(&self, text: &str) {
        // Labels contain names from sources, and indicatif writes them without `for_terminal`.
        self.inner.set_message(clean(text, MAX_LABEL_CHARS));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.inner.finish_and_clear();
        self.live_bars.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns an option without control characters, at most [`MAX_OPTION_CHARS`] long.
fn clean_option(option: &str) -> String {
    // Options contain names from sources, and inquire writes them without `for_terminal`.
    clean(option, MAX_OPTION_CHARS)
}

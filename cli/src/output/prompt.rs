//! The questions of commands. Without a terminal, each question fails and names the flag that
//! answers it.

use inquire::InquireError;
use zeroize::Zeroizing;

use super::{
    Ui,
    interaction::{Choices, is_cancelled},
};
use crate::errors::Failure;

impl Ui {
    /// Fails if no question may be asked. The failure lists the options and names the flag that
    /// answers the question.
    fn require_terminal(
        &self,
        question: &str,
        flag: &str,
        options: &[String],
    ) -> Result<(), Failure> {
        if self.may_ask() {
            return Ok(());
        }
        // Without this check, an agent or a CI run would wait forever for an answer.
        Err(fail!(NoTty, "there is no terminal to ask: {question}")
            .hint(format!("answer it with `{flag}`"))
            .details(options.iter().cloned()))
    }

    /// Asks yes or no; the default is no. `--yes` answers yes. Without a terminal it fails and
    /// names that flag.
    pub fn confirm(&self, question: &str) -> Result<bool, Failure> {
        Ok(self.yes || self.confirm_default(question, false)?)
    }

    /// Asks for a confirmation. Fails if the answer is no.
    pub fn confirm_or_stop(&self, question: &str) -> Result<(), Failure> {
        if self.confirm(question)? {
            return Ok(());
        }
        Err(fail!(NotConfirmed, "nothing was changed"))
    }

    /// Prints the effects of a step, one per line, and asks for a confirmation with the default no.
    /// Fails if the answer is no. Without a terminal, the failure lists the effects.
    pub fn confirm_step(&self, question: &str, effects: &[String]) -> Result<(), Failure> {
        if !self.yes {
            self.require_terminal(question, "--yes", effects)?;
            for effect in effects {
                self.must_see(format!("  {effect}"));
            }
        }
        self.confirm_or_stop(question)
    }

    /// Like [`Ui::confirm_step`], but with the default yes, for a step that the user has asked for.
    pub fn confirm_wanted_step(&self, question: &str, effects: &[String]) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        self.require_terminal(question, "--yes", effects)?;
        for effect in effects {
            self.must_see(format!("  {effect}"));
        }
        if self.confirm_default(question, true)? {
            return Ok(());
        }
        Err(fail!(NotConfirmed, "nothing was changed"))
    }

    /// Asks for one of several options. Without a terminal it fails and names the flag that
    /// answers.
    pub fn choose_one(
        &self,
        question: &str,
        flag: &str,
        options: Vec<String>,
    ) -> Result<String, Failure> {
        self.require_terminal(question, flag, &options)?;
        let chosen = self.interaction.choose_option(question, &options);
        // Return the option by its index: the prompt shows cleaned copies, but the caller needs its
        // own text.
        let mut options = options;
        Ok(options.swap_remove(chosen.map_err(asking_failed)?))
    }

    /// Asks for any number of options and returns their indexes. Without a terminal, fails and
    /// names the flags that answer. Text after two spaces in an option explains it.
    pub fn choose_many(
        &self,
        question: &str,
        flags: &str,
        options: &[String],
    ) -> Result<Vec<usize>, Failure> {
        let options = align_options(options);
        self.require_terminal(question, flags, &options)?;
        let choices = Choices {
            options: &options,
            ticked: false,
            help: "space: select, right: all, left: none, type to filter, Enter: add",
            cut: true,
        };
        let chosen = self.interaction.choose_options(question, &choices);
        chosen.map_err(asking_failed)
    }

    /// Asks yes or no. Enter and `--yes` choose `answer`.
    pub fn confirm_default(&self, question: &str, answer: bool) -> Result<bool, Failure> {
        if self.yes {
            return Ok(answer);
        }
        self.require_terminal(question, "--yes", &[])?;
        let agreed = self.use_earlier_agreement(question)
            || self
                .interaction
                .ask_yes_or_no(question, answer)
                .map_err(asking_failed)?;
        if agreed {
            self.agreed.borrow_mut().push(question.to_owned());
        }
        Ok(agreed)
    }

    /// Asks yes or no about something that was just shown; the default is no. `--yes` does not
    /// answer it. Call it only if [`Ui::may_ask`].
    pub fn confirm_in_person(&self, question: &str) -> Result<bool, Failure> {
        // `--yes` does not count: the question is about content that somebody has to have read.
        debug_assert!(self.may_ask(), "the caller asks only a person");
        let answer = self.interaction.ask_yes_or_no(question, false);
        answer.map_err(asking_failed)
    }

    /// Asks for one of several options. `--yes` chooses the first.
    pub fn choose_first(&self, question: &str, options: Vec<String>) -> Result<String, Failure> {
        match options.first() {
            Some(first) if self.yes => Ok(first.clone()),
            _ => self.choose_one(question, "--yes", options),
        }
    }

    /// Asks for any number of options. `ticked` decides whether all or none are preselected, and
    /// `--yes` keeps that selection.
    pub fn choose_preselected(
        &self,
        question: &str,
        options: Vec<String>,
        ticked: bool,
    ) -> Result<Vec<String>, Failure> {
        if self.yes {
            return Ok(if ticked { options } else { Vec::new() });
        }
        self.require_terminal(question, "--yes", &options)?;
        let choices = Choices {
            options: &options,
            ticked,
            help: "space: select, right: all, left: none, Enter: continue",
            cut: false,
        };
        let chosen = self.interaction.choose_options(question, &choices);
        let chosen = chosen.map_err(asking_failed)?.into_iter();
        Ok(chosen.map(|index| options[index].clone()).collect())
    }

    /// Asks twice for a new passphrase. Without a terminal, fails and names the variable
    /// `VAULT_KEY_PASSPHRASE_FILE`.
    pub fn new_passphrase(&self, question: &str) -> Result<Zeroizing<String>, Failure> {
        let variable = "VAULT_KEY_PASSPHRASE_FILE=<file>";
        self.require_terminal(question, variable, &[])?;
        let entered = self.interaction.ask_new_secret(question);
        entered.map_err(asking_failed)
    }

    /// Asks for a line of text, and returns it trimmed. `--yes` answers with an empty line.
    pub fn ask_text(&self, question: &str) -> Result<String, Failure> {
        if self.yes {
            return Ok(String::new());
        }
        self.require_terminal(question, "--yes", &[])?;
        let text = self.interaction.ask_line(question);
        Ok(text.map_err(asking_failed)?.trim().to_owned())
    }
}

/// Aligns the explanations of the options in a column, except where a name exceeds 24 characters.
fn align_options(options: &[String]) -> Vec<String> {
    // One long name must not push the explanations of all others out of view.
    const MOST: usize = 24;
    let parts: Vec<_> = options
        .iter()
        .map(|option| option.split_once("  ").unwrap_or((option, "")))
        .collect();
    let widths = parts.iter().map(|(name, _)| name.chars().count());
    let width = widths.max().unwrap_or(0).min(MOST);
    let lines = parts.iter().map(|(name, text)| match text.trim_start() {
        "" => (*name).to_owned(),
        text => format!("{name:<width$}  {text}"),
    });
    lines.collect()
}

fn asking_failed(error: InquireError) -> Failure {
    match error {
        left if is_cancelled(&left) => fail!(Interrupted, "interrupted"),
        // An error of the terminal itself, such as one that closed while the question waited.
        other => fail!(NoTty, "could not prompt: {other}"),
    }
}

//! The one table that a run ends with.

use std::io::Write as _;

/// What a figure has to reach.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Subject by baseline, at least this.
    Least(f64),
    /// Subject by baseline, at most this.
    Most(f64),
    /// The subject itself stays below this.
    Below(f64),
    /// The subject itself stays above this.
    Above(f64),
    /// For the record.
    None,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Row {
    figure: String,
    unit: &'static str,
    subject: f64,
    baseline: Option<(f64, &'static str)>,
    target: Target,
}

impl Row {
    /// A figure with nothing to compare it with.
    pub fn new(figure: impl Into<String>, subject: f64, unit: &'static str) -> Self {
        Self {
            figure: figure.into(),
            unit,
            subject,
            baseline: None,
            target: Target::None,
        }
    }

    /// What was measured beside it, in the same unit.
    pub fn beside(mut self, baseline: f64, what: &'static str) -> Self {
        self.baseline = Some((baseline, what));
        self
    }

    /// What it has to reach.
    pub fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.baseline.map(|(baseline, _)| self.subject / baseline)
    }

    /// Whether the target is met; `None` where there is none.
    fn met(&self) -> Option<bool> {
        match self.target {
            Target::Least(least) => Some(self.ratio().is_some_and(|ratio| ratio >= least)),
            Target::Most(most) => Some(self.ratio().is_some_and(|ratio| ratio <= most)),
            Target::Below(limit) => Some(self.subject < limit),
            Target::Above(least) => Some(self.subject > least),
            Target::None => None,
        }
    }

    fn cells(&self) -> [String; 6] {
        let target = match self.target {
            Target::Least(least) => format!("ratio >= {least:.2}"),
            Target::Most(most) => format!("ratio <= {most:.2}"),
            Target::Below(limit) => format!("< {limit} {}", self.unit),
            Target::Above(least) => format!("> {least} {}", self.unit),
            Target::None => "-".to_owned(),
        };
        let met = match self.met() {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "-",
        };
        [
            self.figure.clone(),
            format!("{} {}", number(self.subject), self.unit),
            self.baseline.map_or_else(
                || "-".to_owned(),
                |(value, what)| format!("{} ({what})", number(value)),
            ),
            self.ratio()
                .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            target,
            met.to_owned(),
        ]
    }
}

/// Every line of a run.
#[derive(Debug, Default)]
pub struct Table(Vec<Row>);

impl Table {
    /// Adds a line.
    pub fn row(&mut self, row: Row) {
        let [figure, measured, baseline, ratio, ..] = row.cells();
        say(&format!(
            "  {figure}: {measured}, baseline {baseline}, ratio {ratio}"
        ));
        self.0.push(row);
    }

    /// Whether no target was missed.
    pub fn all_met(&self) -> bool {
        self.0.iter().all(|row| row.met() != Some(false))
    }

    /// Prints it to standard output.
    pub fn print(&self) {
        let head = ["figure", "measured", "baseline", "ratio", "target", "met"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.0.iter().map(Row::cells));
        let widths: Vec<usize> = (0..head.len())
            .map(|at| {
                rows.iter()
                    .map(|row| row[at].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |row: &[String; 6]| {
            let cells: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = String::from("\n");
        text.push_str(&line(&rows[0]));
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        text.push_str(&format!("| {} |\n", rule.join(" | ")));
        for row in &rows[1..] {
            text.push_str(&line(row));
        }
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

/// A line on standard error, for who waits.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Three digits or more, thousands apart.
fn number(value: f64) -> String {
    let text = if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    };
    let (whole, rest) = text
        .split_once('.')
        .map_or((&text[..], ""), |(w, r)| (w, r));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() {
        grouped
    } else {
        format!("{grouped}.{rest}")
    }
}

//! Text tables and lists of names for people.

use super::{
    clean,
    style::{DIM, GOOD, WARN, paint},
    width::{shorten_text, text_width},
};

/// Columns of blanks between two columns of a table.
const GAP: usize = 2;

/// A column of a [`Table`]: its heading, and whether it may be shortened or left out on a narrow
/// terminal.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    heading: &'static str,
    /// The width, in columns of the terminal, to which its cells may be shortened; `None` if they
    /// stay whole.
    least: Option<usize>,
    /// Whether columns that may be left out are left out before its cells are shortened.
    shrinks_last: bool,
    /// The order in which columns are left out, lowest number first; `None` if it always stays.
    leaves: Option<u8>,
}

impl Column {
    /// Creates a column that keeps its full width.
    pub const fn new(heading: &'static str) -> Self {
        Self {
            heading,
            least: None,
            shrinks_last: false,
            leaves: None,
        }
    }

    /// Allows the cells to be shortened to this many columns of the terminal.
    #[must_use]
    pub const fn shrinks_to(mut self, least: usize) -> Self {
        self.least = Some(least);
        self
    }

    /// Like [`Self::shrinks_to`], but only after other columns were left out. For values that
    /// people compare as a whole, such as fingerprints.
    #[must_use]
    pub const fn shrinks_last_to(mut self, least: usize) -> Self {
        self.shrinks_last = true;
        self.shrinks_to(least)
    }

    /// Allows the column to be left out if the terminal is too narrow. The column with the lowest
    /// number is left out first.
    #[must_use]
    pub const fn leaves(mut self, order: u8) -> Self {
        self.leaves = Some(order);
        self
    }
}

/// A text table: rows below dimmed headings, with two spaces between the columns. On a terminal,
/// columns are left out or shortened until a row fits on one line.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// Sets the number of spaces before each line.
    #[must_use]
    pub const fn indented(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }

    /// Appends a row, with a cell for each column.
    pub fn push_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Formats the table for a terminal of this width; with `None`, in full. If columns were left
    /// out, a last line names them.
    pub fn to_text(&self, terminal: Option<usize>) -> String {
        let (columns, widths) = match terminal {
            Some(terminal) => self.fit_columns(terminal.saturating_sub(self.indent)),
            None => {
                let all: Vec<usize> = (0..self.columns.len()).collect();
                let widths = all.iter().map(|column| self.full_width(*column));
                (all.clone(), widths.collect())
            }
        };
        let mut rows = vec![self.heading_row(&columns)];
        rows.extend(self.rows.iter().map(|row| {
            let cells = columns.iter().zip(&widths);
            let cells = cells.map(|(column, width)| match row.get(*column) {
                Some(cell) => shorten_text(cell, *width),
                None => String::new(),
            });
            cells.collect()
        }));
        let mut text = align_rows(&rows, self.indent);
        let missing = (0..self.columns.len()).filter(|column| !columns.contains(column));
        let missing = missing.map(|column| self.columns[column].heading);
        let missing: Vec<_> = missing.filter(|heading| !heading.is_empty()).collect();
        if !missing.is_empty() {
            let names = missing.join(", ");
            let line = format!("Not shown at this width: {names}. -v shows all.");
            text.push_str(&format!(
                "\n{:indent$}{}",
                "",
                paint(DIM, line),
                indent = self.indent
            ));
        }
        text
    }

    fn heading_row(&self, columns: &[usize]) -> Vec<String> {
        let headings = columns.iter().map(|column| self.columns[*column].heading);
        headings.map(|heading| paint(DIM, heading)).collect()
    }

    /// Chooses the columns that fit, and their widths.
    fn fit_columns(&self, terminal: usize) -> (Vec<usize>, Vec<usize>) {
        let mut columns: Vec<usize> = (0..self.columns.len()).collect();
        let least = |column: &usize| {
            let full = self.full_width(*column);
            self.columns[*column]
                .least
                .map_or(full, |least| full.min(least))
        };
        let at_first = |column: &usize| {
            if self.columns[*column].shrinks_last {
                self.full_width(*column)
            } else {
                least(column)
            }
        };
        let total =
            |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let mut widths: Vec<usize> = columns.iter().map(at_first).collect();
        while total(&widths) > terminal {
            let leaving = columns.iter().enumerate();
            let leaving =
                leaving.filter_map(|(at, column)| Some((self.columns[*column].leaves?, at)));
            let Some((_, at)) = leaving.min() else { break };
            columns.remove(at);
            widths.remove(at);
        }
        if total(&widths) > terminal {
            widths = columns.iter().map(least).collect();
        }
        // The remaining width goes to the narrowest shortened column first, so that a wide column
        // does not take all of it.
        for _ in total(&widths)..terminal {
            let growing = columns.iter().zip(&mut widths);
            let growing = growing.filter(|(column, width)| **width < self.full_width(**column));
            let Some((_, width)) = growing.min_by_key(|(_, width)| **width) else {
                break;
            };
            *width += 1;
        }
        (columns, widths)
    }

    /// Returns the width of the widest cell of a column, heading included.
    fn full_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| text_width(cell)).max();
        let heading = text_width(self.columns[column].heading);
        widest.unwrap_or_default().max(heading)
    }
}

/// Aligns the cells of rows in columns, and returns the lines.
fn align_rows(rows: &[Vec<String>], indent: usize) -> String {
    // Rows may have different numbers of cells.
    let column_width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| text_width(cell)).max().unwrap_or(0)
    };
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(column_width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths);
        // Drop the escape codes of an empty cell: behind them, `trim_end` would not find the
        // spaces.
        let cells = cells.map(|(cell, most)| match text_width(cell) {
            0 => " ".repeat(most + GAP),
            used => cell.clone() + &" ".repeat(most - used + GAP),
        });
        let line = " ".repeat(indent) + &cells.collect::<String>();
        line.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats pairs of a name and a value, one per line, aligned. Pairs without a value are left out.
pub fn format_facts<'a>(lines: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let rows = lines
        .into_iter()
        .filter_map(|(name, value)| Some(vec![paint(DIM, name), value?]));
    align_rows(&rows.collect::<Vec<_>>(), 0)
}

/// Returns the day of an RFC 3339 time, or `-` if the text is too short to be one.
pub fn format_day(time: &str) -> String {
    match time.get(..10) {
        Some(day) => clean(day, 10),
        None => "-".to_owned(),
    }
}

/// Returns day and minute of an RFC 3339 time in UTC, or `-` if the text is too short to be one.
pub fn format_minute(time: &str) -> String {
    match (time.get(..10), time.get(11..16)) {
        (Some(day), Some(clock)) => clean(&format!("{day} {clock}"), 16),
        _ => "-".to_owned(),
    }
}

/// Formats the names that a release added, changed and removed, one per line. Each kind shows at
/// most 20 names.
pub fn change_lines<T: std::fmt::Display>(
    added: &[T],
    changed: &[T],
    removed: &[T],
) -> Vec<String> {
    const SHOWN: usize = 20;
    let mut lines = Vec::new();
    for (mark, names) in [
        (paint(GOOD, "+"), added),
        (paint(WARN, "~"), changed),
        (paint(DIM, "-"), removed),
    ] {
        let named = names.iter().take(SHOWN);
        lines.extend(named.map(|name| format!("  {mark} {name}")));
        if let more @ 1.. = names.len().saturating_sub(SHOWN) {
            lines.push(format!("  {mark} and {more} more"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_changes_of_one_kind_the_first_twenty_are_named() {
        let many: Vec<_> = (1..=22).map(|n| format!("skill-{n}")).collect();
        let lines = change_lines(&many, &many[..20], &[]);
        assert_eq!(lines.len(), 21 + 20);
        assert!(lines[19].ends_with(" skill-20"), "{}", lines[19]);
        assert!(lines[20].ends_with(" and 2 more"), "{}", lines[20]);
        assert!(lines[40].ends_with(" skill-20"), "{}", lines[40]);
    }

    /// A table of machines, as plain text at this width.
    fn machines(terminal: Option<usize>) -> String {
        let mut table = Table::new([
            Column::new("machine").shrinks_to(8),
            Column::new("seen"),
            Column::new("id").leaves(2),
            Column::new("enrolled").leaves(1),
        ]);
        let row = |cells: [&str; 4]| cells.map(|cell| paint(super::super::style::BOLD, cell));
        table.push_row(row(["build server", "-", "dev_1", "2026-11-23"]));
        table.push_row(row(["漢字", "never", "", ""]));
        anstream::adapter::strip_str(&table.to_text(terminal)).to_string()
    }

    #[test]
    fn a_table_lines_up_whatever_the_styles() {
        let all = "machine       seen   id     enrolled\nbuild server  -      dev_1  2026-11-23\n\
                   漢字          never";
        assert_eq!(machines(None), all);
        assert_eq!(machines(Some(38)), all);
    }

    #[test]
    fn a_narrow_table_shortens_cells_then_leaves_columns_out() {
        let lines = |terminal| {
            let text = machines(Some(terminal));
            let rows = text.lines().filter(|line| !line.starts_with("Not shown"));
            assert!(
                rows.clone().all(|row| text_width(row) <= terminal),
                "{text}"
            );
            text.lines().nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(lines(37), "build serv…  -      dev_1  2026-11-23");
        assert_eq!(lines(34), "build…   -      dev_1  2026-11-23");
        assert_eq!(lines(26), "build server  -      dev_1");
        assert_eq!(lines(19), "build server  -");
        assert_eq!(lines(15), "build…   -");
        let narrow = machines(Some(19));
        let end = "Not shown at this width: id, enrolled. -v shows all.";
        assert!(narrow.ends_with(end), "{narrow}");
    }
}

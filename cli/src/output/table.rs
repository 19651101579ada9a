//! Text tables and lists of names for people.

use super::{
    clean,
    style::{DIM, GOOD, WARN, paint},
};

/// Columns of text with two spaces between them. Widths are counted in characters without styles,
/// and the last column has no limit.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with a dimmed heading.
    pub fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(|cell| paint(DIM, cell)).collect()],
        }
    }

    /// Appends a row.
    pub fn push_row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Formats the table as lines.
    pub fn to_text(&self) -> String {
        let strip = anstream::adapter::strip_str;
        let width = |cell: &String| strip(cell).to_string().chars().count();
        // Rows may have fewer cells than the heading, so a column takes those that exist.
        let column_width = |column| {
            let cells = self.rows.iter().filter_map(|row: &Vec<_>| row.get(column));
            cells.map(width).max().unwrap_or(0)
        };
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(column_width).collect();
        let lines = self.rows.iter().map(|row| {
            let cells = row.iter().zip(&widths);
            // The styles of an empty cell would keep the spaces before it at the end of the line.
            let cells = cells.map(|(cell, most)| match width(cell) {
                0 => " ".repeat(most + 2),
                used => cell.clone() + &" ".repeat(most - used + 2),
            });
            cells.collect::<String>().trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Formats lines of a name and a value. A line without a value is left out.
pub fn format_facts<'a>(lines: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let mut table = Table::default();
    for (name, value) in lines {
        if let Some(value) = value {
            table.push_row([paint(DIM, name), value]);
        }
    }
    table.to_text()
}

/// Returns the day of a time in RFC 3339, or `-` if there is no time.
pub fn format_day(time: &str) -> String {
    match time.get(..10) {
        Some(day) => clean(day, 10),
        None => "-".to_owned(),
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

    #[test]
    fn a_table_lines_up_whatever_the_styles() {
        let mut table = Table::new(&["name", "status"]);
        table.push_row([paint(super::super::style::BOLD, "a"), "active".into()]);
        table.push_row(["longer".into(), paint(super::super::style::BOLD, "")]);
        assert_eq!(
            anstream::adapter::strip_str(&table.to_text()).to_string(),
            "name    status\na       active\nlonger"
        );
    }
}

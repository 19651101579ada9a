//! Text tables for people.

use super::style::{DIM, paint};

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
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Formats the table as lines.
    pub fn text(&self) -> String {
        let width = |cell: &str| {
            anstream::adapter::strip_str(cell)
                .to_string()
                .chars()
                .count()
        };
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| width(cell))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut lines = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                line.push_str(cell);
                if column + 1 < row.len() {
                    line.push_str(&" ".repeat(widths[column] - width(cell) + 2));
                }
            }
            lines.push(line.trim_end().to_owned());
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_whatever_the_styles() {
        let mut table = Table::new(&["name", "status"]);
        table.row([paint(super::super::style::BOLD, "a"), "active".into()]);
        table.row(["longer".into(), String::new()]);
        assert_eq!(
            anstream::adapter::strip_str(&table.text()).to_string(),
            "name    status\na       active\nlonger"
        );
    }
}

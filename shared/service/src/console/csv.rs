//! Writer of comma-separated values (RFC 4180) that protects readers against formulas in cells.

/// Appends a row. A cell that a spreadsheet would run as a formula gets an apostrophe in front,
/// which makes it text.
pub(super) fn append_row(out: &mut String, cells: &[&str]) {
    for (at, cell) in cells.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        // Other users choose some of the cells, and the owner opens the file. In some spreadsheets,
        // full-width signs also begin a formula, and leading tabs and line breaks are skipped.
        let is_formula =
            cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
        // Every cell is quoted, so that a comma or line break in it cannot begin another cell.
        out.push('"');
        if is_formula {
            out.push('\'');
        }
        out.push_str(&cell.replace('"', "\"\""));
        out.push('"');
    }
    out.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_none_breaks_out() {
        for (cell, written) in [
            ("plain", "\"plain\""),
            ("", "\"\""),
            ("=1+1", "\"'=1+1\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\t=1", "\"'\t=1\""),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("a\r\n=b", "\"a\r\n=b\""),
            ("\",=1,\"", "\"\"\",=1,\"\"\""),
        ] {
            let mut out = String::new();
            append_row(&mut out, &[cell, "x"]);
            assert_eq!(out, format!("{written},\"x\"\r\n"), "{cell:?}");
        }
    }
}

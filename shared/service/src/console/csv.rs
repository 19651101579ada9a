//! Rows of comma-separated values (RFC 4180) that no spreadsheet runs.

/// Appends a row. A cell that a spreadsheet would take for a formula gets an apostrophe in front,
/// which it shows as text.
pub(super) fn row(out: &mut String, cells: &[&str]) {
    for (at, cell) in cells.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let is_formula =
            cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
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
            row(&mut out, &[cell, "x"]);
            assert_eq!(out, format!("{written},\"x\"\r\n"), "{cell:?}");
        }
    }
}

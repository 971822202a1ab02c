//! Columns of text, as kubectl aligns them.

use std::fmt::Write as _;

/// Between columns.
const GAP: usize = 3;

/// A table with these headings. Rows are as long as the headings.
pub(crate) fn render<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &[&str; N]| {
        let mut row = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            // Writing into a String cannot fail.
            let _ = write!(row, "{cell:<width$}{:GAP$}", "");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    };
    line(&headings);
    for row in rows {
        line(&row.each_ref().map(String::as_str));
    }
    text
}

/// Named facts, one a line.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in facts {
        let _ = writeln!(text, "{:<width$}  {value}", format!("{name}:"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_aligned() {
        assert_eq!(facts(&[("A", "1".into()), ("Long", "2".into())]), "A:     1\nLong:  2\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let rows =
            [["a".into(), "long text".into(), "x".into()], ["bbbbbb".into(), "ü".into(), String::new()]];
        let expected = "NAME     WHAT        Z\na        long text   x\nbbbbbb   ü\n";
        assert_eq!(render(["NAME", "WHAT", "Z"], &rows), expected);
    }
}

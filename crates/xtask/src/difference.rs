//! Says in words where two texts differ first.

/// The first line that differs; `None` when the texts are equal.
pub(crate) fn first(wanted: &str, found: &str) -> Option<String> {
    if wanted == found {
        return None;
    }
    let (mut wanted_lines, mut found_lines) = (wanted.lines(), found.lines());
    for number in 1.. {
        match (wanted_lines.next(), found_lines.next()) {
            (None, None) => break,
            (ours, theirs) if ours == theirs => {}
            (ours, theirs) => {
                let show = |line: Option<&str>| {
                    line.map_or("the end".to_owned(), |line| format!("`{}`", line.trim()))
                };
                return Some(format!(
                    "differs from line {number} on: has {}, must have {}",
                    show(theirs),
                    show(ours)
                ));
            }
        }
    }
    Some("differs in its line ends".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_different_line_is_shown_with_both_texts() {
        assert_eq!(first("a\nb\n", "a\nb\n"), None);
        assert_eq!(
            first("a\n  b\nc\n", "a\n  x\nc\n").unwrap(),
            "differs from line 2 on: has `x`, must have `b`"
        );
        assert_eq!(first("a\nb\n", "a\n").unwrap(), "differs from line 2 on: has the end, must have `b`");
        assert_eq!(first("a\n", "a").unwrap(), "differs in its line ends");
    }
}

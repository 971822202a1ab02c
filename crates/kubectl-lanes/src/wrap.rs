//! Sentences in lines of 80 columns.

/// Columns of a line.
const WIDTH: usize = 80;

/// Words after a heading; further lines are indented as far as the heading is long. Ends with a line break.
pub(crate) fn wrap(heading: &str, words: &str) -> String {
    let indent = heading.chars().count();
    let mut text = heading.to_owned();
    let mut column = indent;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_indented() {
        let text = wrap("Name:  ", &"wörd ".repeat(30));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(lines[0].starts_with("Name:  wörd") && lines[1].starts_with("       wörd"), "{text}");
    }

    #[test]
    fn a_word_that_is_too_long_has_a_line_of_its_own() {
        let long = "x".repeat(100);
        assert_eq!(wrap("- ", &format!("a {long} b")), format!("- a\n  {long}\n  b\n"));
    }
}

//! What is wrong with a specification: field, value, what is allowed.

use std::fmt;

/// The most characters of a value that are quoted back.
const MAX_QUOTED_CHARS: usize = 80;

/// One thing that is wrong with a specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: {allowed}")]
pub struct Invalid {
    /// Path of the field, as a person writes it.
    pub field: String,
    /// The value as it was given, shortened.
    pub value: String,
    /// What it must be; begins with "must".
    pub allowed: String,
}

impl Invalid {
    /// A text that is wrong.
    pub fn text(field: impl Into<String>, value: &str, allowed: impl Into<String>) -> Self {
        let mut quoted: String = value.chars().take(MAX_QUOTED_CHARS).collect();
        if quoted.len() < value.len() {
            quoted.push('…');
        }
        Self { field: field.into(), value: format!("'{quoted}'"), allowed: allowed.into() }
    }

    /// A number or word that is wrong.
    pub fn value(field: impl Into<String>, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.to_string(), allowed: allowed.into() }
    }

    /// A field that is missing.
    pub fn missing(field: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), value: "missing".to_owned(), allowed: allowed.into() }
    }

    /// A field that must not be there.
    pub fn forbidden(field: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), value: "given".to_owned(), allowed: allowed.into() }
    }
}

/// All that is wrong, in one line for a condition.
pub fn summary(invalid: &[Invalid]) -> String {
    invalid.iter().map(Invalid::to_string).collect::<Vec<_>>().join("; ")
}

/// Collects what is wrong, so that a person sees all of it at once.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Invalid>);

impl Findings {
    /// Notes one.
    pub(crate) fn add(&mut self, invalid: Invalid) {
        self.0.push(invalid);
    }

    /// Notes a text unless it is as it must be.
    pub(crate) fn require_text(&mut self, right: bool, field: &str, value: &str, allowed: &str) {
        if !right {
            self.add(Invalid::text(field, value, allowed));
        }
    }

    /// Notes a text whose length in characters is out of bounds.
    pub(crate) fn bound_text(&mut self, field: &str, value: &str, most: usize) {
        let length = value.chars().count();
        let right = (1..=most).contains(&length);
        self.require_text(right, field, value, &format!("must have 1 to {most} characters, not {length}"));
    }

    /// A number within bounds as an unsigned one; the lower bound is used in place of a wrong one, which is noted.
    pub(crate) fn bound<N>(&mut self, field: &str, value: i64, least: N, most: N) -> N
    where
        N: TryFrom<i64> + PartialOrd + Copy + fmt::Display,
    {
        match N::try_from(value) {
            Ok(number) if number >= least && number <= most => number,
            _ => {
                self.add(Invalid::value(field, value, format!("must be from {least} to {most}")));
                least
            }
        }
    }

    /// The value, unless anything was noted.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<Invalid>> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_field_value_and_what_is_allowed() {
        let invalid = Invalid::value("spec.partitions", -1, "must be from 1 to 1024");
        assert_eq!(invalid.to_string(), "spec.partitions is -1: must be from 1 to 1024");
    }

    #[test]
    fn a_long_value_is_quoted_in_part() {
        let invalid = Invalid::text("spec.stream.name", &"é".repeat(1000), "must be shorter");
        assert_eq!(invalid.value.chars().count(), MAX_QUOTED_CHARS + 3);
    }

    #[test]
    fn numbers_out_of_range_of_their_type_are_found_as_well() {
        let mut findings = Findings::default();
        assert_eq!(findings.bound("a", -1, 1_u16, 65_535), 1);
        assert_eq!(findings.bound("b", 65_536, 1_u16, 65_535), 1);
        assert_eq!(findings.bound("c", 8080, 1_u16, 65_535), 8080);
        assert_eq!(findings.finish(Some(())).unwrap_err().len(), 2);
    }
}

//! Kubernetes' notation for amounts of resources: only whether a text is one.
//!
//! <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>

/// The same as a regular expression, as it stands in the CRD.
pub const PATTERN: &str = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

const SUFFIXES: [&str; 16] =
    ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Whether a text is an amount, such as `500m`, `1.5` or `64Mi`.
pub fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    is_number(number) && (SUFFIXES.contains(&suffix) || is_exponent(suffix))
}

fn is_number(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() <= 1 && text.bytes().any(|byte| byte.is_ascii_digit())
}

fn is_exponent(suffix: &str) -> bool {
    let Some(digits) = suffix.strip_prefix(['e', 'E']) else { return false };
    let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_from_other_texts() {
        for good in ["0", "1", "1.5", ".5", "1.", "500m", "64Mi", "1e3", "1E-3", "2E", "+1", "-1"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", ".", "1..2", "m", "64MB", "1 Gi", "1e", "e3", "--1", "1Kim"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}

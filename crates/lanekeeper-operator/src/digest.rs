//! A short, stable hash of JSON: tells whether what is wanted changed since it was applied.
//!
//! FNV-1a, 64 bit, of the canonical text (keys of objects are sorted). Not for anything that an attacker could
//! gain from.

use serde_json::Value;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Sixteen hex digits; equal for equal values.
pub fn digest(value: &Value) -> String {
    // `Value`'s objects are sorted maps, so equal values have equal texts.
    let hash =
        value.to_string().bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter_and_values_do() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":[1,2]}"#).unwrap();
        let same: Value = serde_json::from_str(r#"{"b":[1,2],"a":1}"#).unwrap();
        assert_eq!(digest(&one), digest(&same));
        assert_ne!(digest(&one), digest(&json!({"a": 1, "b": [2, 1]})));
        assert_eq!(digest(&json!({})).len(), 16);
    }
}

//! Halves of surrogate pairs, which JSON can escape and no text can hold.

/// What is expected of texts that have half of a surrogate pair.
pub(crate) const WHOLE_CHARACTERS: &str = "text of whole characters, found half of a surrogate pair";

/// Whether a JSON text escapes half of a surrogate pair (`"\ud800"`): some take that for JSON, but no text can be made
/// of it, so that what has it could be stored and never be read again.
pub(crate) fn has_half_a_pair(json: &str) -> bool {
    let mut escapes = json;
    while let Some((_, escaped)) = escapes.split_once('\\') {
        let (unit, after) = unit_of(escaped);
        let (next, behind) = after.strip_prefix('\\').map_or((None, after), unit_of);
        escapes = match (unit, next) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => behind,
            (Some(0xd800..=0xdfff), _) => return true,
            _ => after,
        };
    }
    false
}

/// The unit of UTF-16 that stands behind a backslash, if it is one, and what follows the escape.
fn unit_of(escaped: &str) -> (Option<u16>, &str) {
    let unit = escaped.strip_prefix('u').and_then(|hex| u16::from_str_radix(hex.get(..4)?, 16).ok());
    let end = if unit.is_some() { 5 } else { escaped.chars().next().map_or(0, char::len_utf8) };
    (unit, escaped.get(end..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_pair_is_found_wherever_it_stands() {
        for half in
            [r"\ud800", r"\uDFFF", r"\ud83d\n\ude00", r"\ud83d\ud83d\ude00", r"\\\udc00", r"\ud800\u0041"]
        {
            for json in [format!(r#""{half}""#), format!(r#"{{"a":[1,{{"{half}":2}}]}}"#)] {
                assert!(has_half_a_pair(&json), "{json}");
            }
        }
        for whole in [r"\ud83d\ude00", r"\\ud800", r"\uD83D\uDE00\u0041\\", "é\u{1f600}", r"\u0000"] {
            let json = format!(r#"["{whole}"]"#);
            assert!(!has_half_a_pair(&json), "{json}");
            assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
        }
    }
}

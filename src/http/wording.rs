//! What a reader of JSON says of what it cannot take, in the words that people are told: what was expected first.

/// What was expected, and what was found, without the line and column: they mean nothing to who wrote no text by hand.
pub(super) fn expected(message: &str) -> String {
    let message = &message[..message.rfind(" at line ").unwrap_or(message.len())];
    if message.starts_with("missing field `") {
        return "a value, found nothing".to_owned();
    }
    if let Some(found) = message.strip_prefix("unknown field ")
        && let Some(found) = found.strip_suffix(", there are no fields")
    {
        return format!("no fields, found {found}");
    }
    let starts =
        ["unknown field ", "unknown variant ", "invalid type: ", "invalid value: ", "invalid length "];
    let rest = starts.iter().find_map(|start| message.strip_prefix(start));
    match rest.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, what)) => format!("{}, found {}", plain(what), found_as(found)),
        None => message.to_owned(),
    }
}

/// A type of the program's, as JSON has it.
fn plain(what: &str) -> &str {
    match what {
        "f32" | "f64" => "a number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "a map" => "an object",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        "a string" => "a text",
        what if what.starts_with("struct ") => "an object",
        what => what,
    }
}

/// What was found, as JSON has it.
fn found_as(found: &str) -> &str {
    match found {
        "map" => "an object",
        "sequence" => "a list",
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_expected_is_told_first() {
        for (message, told) in [
            ("invalid type: string \"60\", expected f64 at line 1 column 9", "a number, found string \"60\""),
            ("invalid value: integer `-1`, expected u32", "a whole number from 0 on, found integer `-1`"),
            ("invalid type: null, expected struct Cancelling", "an object, found null"),
            ("unknown field `qery`, expected `query` or `wait`", "`query` or `wait`, found `qery`"),
            ("unknown field `x`, there are no fields", "no fields, found `x`"),
            ("unknown variant `soft`, expected one of `a`, `b`, `c`", "one of `a`, `b`, `c`, found `soft`"),
            ("invalid type: sequence, expected a string", "a text, found a list"),
            ("invalid type: map, expected a sequence", "a list, found an object"),
            ("missing field `approved`", "a value, found nothing"),
            ("a length of time", "a length of time"),
            ("", ""),
        ] {
            assert_eq!(expected(message), told, "{message}");
        }
    }
}

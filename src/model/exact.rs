//! JSON whose numbers are kept as they are written, or refused by name: a reader keeps 64 bits of a number, and drops
//! what lies beyond without a word.

use serde_json::Value;
use serde_json::value::RawValue;

use super::pairs::{WHOLE_CHARACTERS, has_half_a_pair};

/// The value of a JSON text.
///
/// # Errors
/// What was expected, if it has a number of more digits than are kept, or half of a surrogate pair.
pub(crate) fn value_of(json: &RawValue) -> Result<Value, String> {
    if has_half_a_pair(json.get()) {
        return Err(WHOLE_CHARACTERS.to_owned());
    }
    if let Some(number) = numbers(json.get()).find(|number| !is_kept(number)) {
        let shown: String = number.chars().take(40).collect();
        return Err(format!("numbers of at most 64 bits, found {shown}; write it as a text"));
    }
    // A reader takes any text that is JSON; but for a number beyond all bounds, which was just refused.
    serde_json::from_str(json.get()).map_err(|error| error.to_string())
}

/// The numbers of a JSON text, as they are written.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let bytes = json.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let mut in_text = false;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\\' if in_text => at += 1,
                b'"' => in_text = !in_text,
                b'-' | b'0'..=b'9' if !in_text => {
                    let begin = at;
                    let is_of_it = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                    at += bytes.iter().skip(begin).take_while(|byte| is_of_it(byte)).count();
                    return json.get(begin..at);
                }
                _ => {}
            }
            at += 1;
        }
        None
    })
}

/// Whether a number is the same after it was read and written, however often.
fn is_kept(number: &str) -> bool {
    let again = |text: &str| serde_json::from_str::<Value>(text).ok().map(|value| value.to_string());
    let Some(once) = again(number) else { return false };
    Decimal::of(number) == Decimal::of(&once) && again(&once).is_some_and(|twice| twice == once)
}

/// A number digit by digit: 1.50 and 15e-1 are the same.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(number: &str) -> Self {
        let (negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let digits = all.trim_end_matches('0');
        let moved = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
        let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX).saturating_sub(moved(fraction.len()));
        let exponent = exponent.saturating_add(moved(all.len() - digits.len()));
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Self { negative: false, digits: String::new(), exponent: 0 };
        }
        Self { negative, digits: digits.to_owned(), exponent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Value, String> {
        value_of(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn what_is_kept_is_what_was_written() {
        for json in [
            "null",
            "-7",
            "0",
            "-0.0",
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "0.1",
            "1.50",
            "15e-1",
            "1E3",
            "1e-7",
            r#"{"a":[1,2.5,"99999999999999999999999 \" 99999999999999999999"],"99999999999999999999999":true}"#,
        ] {
            let value = read(json).unwrap();
            assert_eq!(read(&value.to_string()).unwrap(), value, "{json}");
        }
        assert_eq!(read("9007199254740993").unwrap().to_string(), "9007199254740993");
    }

    #[test]
    fn half_of_a_surrogate_pair_is_refused_by_name() {
        assert_eq!(read(r#"{"a":["\ud800"]}"#).unwrap_err(), WHOLE_CHARACTERS);
        assert_eq!(read(r#""\ud83d\ude00""#).unwrap(), "\u{1f600}");
    }

    #[test]
    fn a_number_that_would_lose_digits_is_refused_by_name() {
        for number in [
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "3.14159265358979323846",
            "0.1000000000000000000000000001",
            "1e-400",
        ] {
            for json in [number.to_owned(), format!(r#"{{"a":["-1",{{"b":{number}}}]}}"#)] {
                let told = read(&json).unwrap_err();
                assert!(told.contains(number) && told.contains("as a text"), "{json}: {told}");
            }
        }
    }
}

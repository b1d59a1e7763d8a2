//! Text that is given: as such, on standard input, or in a file.

use std::io::Read;

use crate::exit::{Failure, reason};

/// The most bytes that are read: more than anything here may have, and not what has no end.
const MOST_BYTES: u64 = 8 << 20;

/// Text that is given as such, or as `-` on standard input.
pub(crate) fn text_or_stdin(text: &str) -> Result<String, Failure> {
    if text == "-" { stdin() } else { Ok(text.to_owned()) }
}

/// All of standard input.
pub(crate) fn stdin() -> Result<String, Failure> {
    read(std::io::stdin(), "standard input")
}

/// All of a file.
pub(crate) fn file(path: &str) -> Result<String, Failure> {
    let shown = format!("\"{path}\"");
    let file = std::fs::File::open(path).map_err(|error| unreadable(&shown, &error))?;
    read(file, &shown)
}

fn read(from: impl Read, shown: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let bytes = from.take(MOST_BYTES + 1).read_to_string(&mut text);
    if bytes.map_err(|error| unreadable(shown, &error))? as u64 > MOST_BYTES {
        return Err(Failure::usage(format!("{shown} has more than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(text)
}

fn unreadable(shown: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{shown} cannot be read: {}", reason(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        let failure = read(std::io::repeat(b'x'), "standard input").unwrap_err();
        assert_eq!(failure.message, "standard input has more than 8 MiB");
        assert_eq!(read(&b"text"[..], "a text").unwrap(), "text");
        let failure = read(&[0xff][..], "\"x\"").unwrap_err();
        assert!(failure.message.starts_with("\"x\" cannot be read: "), "{}", failure.message);
        assert_eq!(text_or_stdin("as such").unwrap(), "as such");
    }
}

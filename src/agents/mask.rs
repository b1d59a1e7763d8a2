//! Secrets that an endpoint repeats are not kept: neither in errors nor in results.
//!
//! A secret is looked for as it was sent, without the word before it (`Bearer`), and as JSON escapes it. In results it
//! is looked for if it has at least [`LEAST_IN_RESULTS`] bytes: what is shorter is no secret, and would be found where
//! it was not meant.

use crate::agent::AgentError;

use super::remote;

/// What stands for a secret.
const MASK: &[u8] = b"***";
/// The shortest secret that is looked for in results.
const LEAST_IN_RESULTS: usize = 8;
/// The shortest beginning of a secret that is masked where a text ends in the middle of one.
const LEAST_BEGINNING: usize = 4;

/// The secrets of one attempt.
pub(super) struct Secrets {
    /// In the order of their variables.
    pub(super) values: Vec<String>,
    pub(super) in_errors: Mask,
    pub(super) in_results: Mask,
}

impl Secrets {
    /// The values of these variables.
    pub(super) fn read<'a>(variables: impl Iterator<Item = &'a String>) -> Result<Self, AgentError> {
        let values = variables.map(|name| remote::secret(name)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { in_errors: Mask::of(&values, 1), in_results: Mask::of(&values, LEAST_IN_RESULTS), values })
    }

    /// The error with no secret in it.
    pub(super) fn masked(&self, mut error: AgentError) -> AgentError {
        error.error.message = self.in_errors.text(&error.error.message).into();
        error
    }
}

/// What to look for.
pub(super) struct Mask {
    /// The longest first: of two that begin alike it is the one that is found.
    forms: Vec<Vec<u8>>,
    /// Whether anything begins with this byte.
    begins: [bool; 256],
}

enum Look {
    Nothing,
    /// Of this length.
    Secret(usize),
    /// What follows decides.
    Perhaps,
}

impl Mask {
    fn of(secrets: &[String], least: usize) -> Self {
        let mut forms = Vec::new();
        for secret in secrets {
            let after_word = secret.rsplit_once(' ').map(|(_, last)| last.to_owned());
            for form in [Some(secret.clone()), after_word.filter(|last| last.len() >= LEAST_IN_RESULTS)] {
                let Some(form) = form else { continue };
                let quoted = serde_json::to_string(&form).unwrap_or_default();
                let escaped = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned();
                forms.extend([escaped.replace('/', "\\/"), escaped, form]);
            }
        }
        forms.retain(|form| form.len() >= least);
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        let forms: Vec<Vec<u8>> = forms.into_iter().map(String::into_bytes).collect();
        let mut begins = [false; 256];
        for first in forms.iter().filter_map(|form| form.first()) {
            begins[usize::from(*first)] = true;
        }
        Self { forms, begins }
    }

    /// A text with no secret in it.
    pub(super) fn text(&self, text: &str) -> String {
        let mut rolling = self.rolling();
        let mut masked = rolling.feed(text.as_bytes());
        masked.extend(rolling.end());
        String::from_utf8_lossy(&masked).into_owned()
    }

    /// For what comes bit by bit.
    pub(super) fn rolling(&self) -> Rolling<'_> {
        Rolling { mask: self, held: Vec::new() }
    }

    fn look(&self, bytes: &[u8]) -> Look {
        if !bytes.first().is_some_and(|first| self.begins[usize::from(*first)]) {
            return Look::Nothing;
        }
        for form in &self.forms {
            if bytes.starts_with(form) {
                return Look::Secret(form.len());
            }
            if form.starts_with(bytes) {
                return Look::Perhaps;
            }
        }
        Look::Nothing
    }
}

/// Masks what comes bit by bit, wherever it is cut: what may be the beginning of a secret is held back.
pub(super) struct Rolling<'a> {
    mask: &'a Mask,
    held: Vec<u8>,
}

impl Rolling<'_> {
    /// What can be told once these bytes have come.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let (mut told, mut at) = (Vec::with_capacity(self.held.len()), 0);
        while at < self.held.len() {
            match self.mask.look(&self.held[at..]) {
                Look::Nothing => {
                    told.push(self.held[at]);
                    at += 1;
                }
                Look::Secret(length) => {
                    told.extend_from_slice(MASK);
                    at += length;
                }
                Look::Perhaps => break,
            }
        }
        self.held.drain(..at);
        told
    }

    /// The rest, when nothing more comes.
    pub(super) fn end(&mut self) -> Vec<u8> {
        let rest = std::mem::take(&mut self.held);
        if rest.len() < LEAST_BEGINNING { rest } else { MASK.to_vec() }
    }

    /// Another text, as a whole.
    pub(super) fn text(&self, text: &str) -> String {
        self.mask.text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(secrets: &[&str], least: usize) -> Mask {
        Mask::of(&secrets.iter().map(|secret| (*secret).to_owned()).collect::<Vec<_>>(), least)
    }

    #[test]
    fn a_secret_is_found_wherever_the_bytes_are_cut() {
        let mask = mask(&["Bearer sk-abcdefgh", "sk-abcdefghij", "q\"/uo\\te"], 1);
        let text =
            r#"ä sk-abc Bearer sk-abcdefgh, sk-abcdefghij; sk-abcdefgh q"/uo\te q\"/uo\\te q\"\/uo\\te sk-"#;
        let expected = "ä sk-abc ***, ***; *** *** *** *** sk-";
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut rolling = mask.rolling();
                let mut told = Vec::new();
                for part in
                    [&text.as_bytes()[..first], &text.as_bytes()[first..second], &text.as_bytes()[second..]]
                {
                    told.extend(rolling.feed(part));
                }
                told.extend(rolling.end());
                assert_eq!(String::from_utf8(told).unwrap(), expected, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn what_is_cut_in_the_middle_of_a_secret_shows_nothing_of_it() {
        let mask = mask(&["sk-abcdefgh"], 1);
        assert_eq!(mask.text("key sk-abcdefg"), "key ***");
        assert_eq!(mask.text("key sk-"), "key sk-", "too little to be one");
    }

    #[test]
    fn what_is_short_is_no_secret_in_results() {
        assert_eq!(mask(&["1234567"], LEAST_IN_RESULTS).text("1234567"), "1234567");
        assert_eq!(mask(&["12345678"], LEAST_IN_RESULTS).text("12345678"), "***");
        assert_eq!(mask(&["a"], 1).text("banana"), "b***n***n***");
    }
}

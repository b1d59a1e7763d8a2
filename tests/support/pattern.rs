//! Texts that documents print in part.

/// Whether a text has the parts of a pattern in their order, from its beginning to its end; `...` stands for anything,
/// with the white space around it.
pub(crate) fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts: Vec<&str> = pattern.split("...").map(str::trim).collect();
    let (first, last) = (parts.remove(0), parts.pop());
    let Some(last) = last else { return text == first };
    let inner = text.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let mut rest = inner.unwrap_or_default();
    inner.is_some()
        && parts.iter().all(|part| match rest.split_once(part) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
}

#[test]
fn a_pattern_means_what_it_says() {
    assert!(is_like("{\"a\":1,\"b\":2}", "{...,\"b\":2}") && is_like("{\"a\":1,\"b\":2}", "{\"a\":1, ...}"));
    assert!(is_like("abc", "abc") && is_like("abc", "a...") && is_like("abc", "...c"));
    assert!(
        !is_like("abc", "ab") && !is_like("abc", "bc") && !is_like("abc", "c...a") && !is_like("abc", "...b")
    );
}

//! Which of the media types that can be answered a caller wants (RFC 9110, section 12.5.1).

use axum::http::{HeaderMap, header};

use super::problem::{Kind, Problem};
use super::query::shown;

/// The first of the offered types that the caller likes best.
pub(super) fn choose(headers: &HeaderMap, offered: &[&'static str]) -> Result<&'static str, Problem> {
    let values = headers.get_all(header::ACCEPT).iter().map(|value| value.to_str().unwrap_or_default());
    let accepted = values.collect::<Vec<_>>().join(",");
    let mut best: Option<(&'static str, u16)> = None;
    for offer in offered {
        let liked = if accepted.trim().is_empty() { 1000 } else { liking(&accepted, offer) };
        if liked > best.map_or(0, |(_, most)| most) {
            best = Some((offer, liked));
        }
    }
    best.map(|(offer, _)| offer).ok_or_else(|| {
        let offered = offered.join(" or ");
        Problem::new(Kind::NotAcceptable, format!("expected to accept {offered}, found {}", shown(&accepted)))
    })
}

/// How much a type is liked, of 1000: what the most particular range that covers it says.
fn liking(accepted: &str, offer: &str) -> u16 {
    let (kind, _) = offer.split_once('/').unwrap_or((offer, ""));
    let mut found = (0, 0);
    for range in accepted.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let particular = match name.as_str() {
            name if name == offer => 3,
            name if name.strip_suffix("/*") == Some(kind) => 2,
            "*/*" => 1,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let liked = weight.map_or(1000, thousandths);
        if particular > found.0 {
            found = (particular, liked);
        }
    }
    found.1
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
fn thousandths(weight: &str) -> u16 {
    (weight.parse::<f32>().unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_that_is_liked_best_is_chosen() {
        let chosen = |accept: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            choose(&headers, &["application/json", "text/event-stream"]).ok()
        };
        let (json, stream) = (Some("application/json"), Some("text/event-stream"));
        for accept in [None, Some("*/*"), Some(""), Some("application/*"), Some("text/html, */*;q=0.1")] {
            assert_eq!(chosen(accept), json, "{accept:?}");
        }
        for accept in
            ["text/event-stream", "TEXT/Event-Stream; q=0.9, */*; q=0.1", "text/*", "text/*, */*;q=0.5"]
        {
            assert_eq!(chosen(Some(accept)), stream, "{accept}");
        }
        for accept in ["text/html", "application/json;q=0, image/*", "nonsense"] {
            assert_eq!(chosen(Some(accept)), None, "{accept}");
        }
    }
}

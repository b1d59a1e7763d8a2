//! What is asked, whoever answers.

use std::time::Duration;

use reqwest::Url;

use super::PATIENCE;
use crate::exit::Failure;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(super) method: &'static str,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Option<String>,
    /// How long the answer is waited for; none for as long as it takes.
    pub(super) patience: Option<Duration>,
}

impl Ask {
    fn new<const N: usize>(method: &'static str, path: [&str; N]) -> Self {
        let mut whole = vec!["background".to_owned()];
        whole.extend(path.map(str::to_owned));
        Self {
            method,
            path: whole,
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
            patience: Some(PATIENCE),
        }
    }

    /// `GET /background/…`; each part is a segment, whatever is in it.
    pub(crate) fn get<const N: usize>(path: [&str; N]) -> Self {
        Self::new("GET", path)
    }

    /// `POST /background/…`.
    pub(crate) fn post<const N: usize>(path: [&str; N]) -> Self {
        Self::new("POST", path)
    }

    /// `PATCH /background/…`.
    pub(crate) fn patch<const N: usize>(path: [&str; N]) -> Self {
        Self::new("PATCH", path)
    }

    /// `DELETE /background/…`.
    pub(crate) fn delete<const N: usize>(path: [&str; N]) -> Self {
        Self::new("DELETE", path)
    }

    /// `GET` of what lies beside the prefix: `/healthz` and its kin.
    pub(crate) fn beside(name: &str) -> Self {
        Self { path: vec![name.to_owned()], ..Self::new("GET", []) }
    }

    /// With the segments of a path below it.
    pub(crate) fn below(mut self, path: &str) -> Self {
        self.path.extend(path.split('/').map(str::to_owned));
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    /// The same for each of these; nothing for none.
    pub(crate) fn queries<T: ToString>(
        self,
        name: &'static str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        values.into_iter().fold(self, |ask, value| ask.query(name, value))
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With this JSON.
    pub(crate) fn json(mut self, text: impl Into<String>) -> Self {
        self.body = Some(text.into());
        self.header("content-type", "application/json")
    }

    /// The answer may take so long beyond the usual.
    pub(crate) fn patient_for(mut self, longer: Duration) -> Self {
        self.patience = self.patience.map(|patience| patience.saturating_add(longer));
        self
    }

    /// The answer may take as long as it takes.
    pub(crate) fn without_limit(mut self) -> Self {
        self.patience = None;
        self
    }

    /// The address below this one.
    pub(super) fn url(&self, base: &Url) -> Result<Url, Failure> {
        let mut url = base.clone();
        let unfit = |what: &str| Failure::usage(format!("\"{what}\" cannot be asked for"));
        {
            let mut path = url.path_segments_mut().map_err(|()| unfit(base.as_str()))?;
            path.pop_if_empty();
            for part in &self.path {
                // These would lead elsewhere, and are left out silently.
                if matches!(part.as_str(), "." | "..") {
                    return Err(Failure::usage(format!(
                        "expected a name or a path without \"{part}\" in it"
                    )));
                }
                path.push(part);
            }
        }
        if !self.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.query);
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_in_a_name_it_stays_one_segment() {
        let base = Url::parse("http://host:8000/behind/").unwrap();
        let url = |ask: Ask| ask.url(&base).map(|url| url.to_string());
        assert_eq!(url(Ask::get(["runs"])).unwrap(), "http://host:8000/behind/background/runs");
        assert_eq!(
            url(Ask::get(["runs", "a/../b?c#d e"])).unwrap(),
            "http://host:8000/behind/background/runs/a%2F..%2Fb%3Fc%23d%20e"
        );
        assert_eq!(
            url(Ask::get(["runs"]).query("text", "a&b=c").queries("status", ["lost", "failed"])).unwrap(),
            "http://host:8000/behind/background/runs?text=a%26b%3Dc&status=lost&status=failed"
        );
        assert_eq!(url(Ask::beside("healthz")).unwrap(), "http://host:8000/behind/healthz");
        assert!(url(Ask::get(["runs", ".."])).is_err());
    }
}

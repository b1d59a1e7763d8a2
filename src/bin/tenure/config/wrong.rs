//! What is wrong with a configuration, all of it at once.

use crate::exit::Failure;

/// The most that is told.
const MOST: usize = 20;

/// What is wrong, in the order in which it was found.
#[derive(Debug, Default)]
pub(crate) struct Wrong {
    said: Vec<String>,
    hint: Option<String>,
}

impl Wrong {
    pub(crate) fn tell(&mut self, said: String) {
        self.said.push(said);
    }

    /// The same of what was a failure by itself.
    pub(crate) fn take<T>(&mut self, done: Result<T, Failure>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(failure) => {
                self.said.push(failure.message);
                self.hint = self.hint.take().or(failure.hint);
                None
            }
        }
    }

    /// What was found, if nothing is wrong.
    pub(crate) fn done<T>(&mut self, found: T) -> Result<T, Failure> {
        if self.said.is_empty() { Ok(found) } else { Err(self.failure()) }
    }

    /// All of it, as one failure. A hint is about one thing: where there are others it would mislead.
    pub(crate) fn failure(&mut self) -> Failure {
        let mut said = std::mem::take(&mut self.said);
        let alone = said.len() == 1;
        if let Some(more) = said.len().checked_sub(MOST).filter(|more| *more > 0) {
            said.truncate(MOST);
            said.push(format!("and {more} more"));
        }
        let failure = Failure::usage(said.join("\n"));
        match self.hint.take().filter(|_| alone) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_told_up_to_a_bound_and_a_hint_of_one_thing_alone() {
        let mut wrong = Wrong::default();
        assert_eq!(wrong.done(7).unwrap(), 7);
        assert!(wrong.take::<()>(Err(Failure::usage("a").hint("do so"))).is_none());
        let failure = wrong.done(7).unwrap_err();
        assert_eq!((failure.message.as_str(), failure.hint.as_deref()), ("a", Some("do so")));
        assert!(wrong.take::<()>(Err(Failure::usage("a").hint("do so"))).is_none());
        (0..MOST + 1).for_each(|n| wrong.tell(n.to_string()));
        let failure = wrong.failure();
        assert_eq!((failure.message.lines().count(), failure.hint), (MOST + 1, None));
        assert!(failure.message.ends_with("and 2 more"), "{}", failure.message);
    }
}

//! A server's clock between two looks at it.
//!
//! Who decides something needs the time of the store, and a question to the server waits behind whatever the server
//! does just then. So what it said is good for a moment: as much is added as has passed here since it was heard. That
//! is never ahead of the server's clock, but for what two clocks drift apart in that moment: a lease that is judged by
//! it ends late, never early. It is behind by what the answer took to get here, so that an answer that took longer than
//! that may matter to who relies on a lease is good for nobody but who asked.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::model::{Run, Timestamp};

/// How long it is good for what a server said. A server that is replaced by one with another clock is noticed by then.
const GOOD_FOR: Duration = Duration::from_millis(100);

/// How long an answer may have taken that is good for others: half the margin of a lease of a second.
const QUICK: Duration = Duration::from_millis(50);

/// A step back of the server's clock is followed from this on. Less is the way of an answer that took longer.
const STEP: Duration = Duration::from_secs(1);

/// What a server said last of its clock.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heard: Option<Heard>,
    /// What was answered last: who asks again is not told something earlier.
    told: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    at: Instant,
    said: Timestamp,
}

impl Heard {
    fn by(self, now: Instant) -> Option<Timestamp> {
        let passed = now.saturating_duration_since(self.at);
        (passed <= GOOD_FOR).then(|| self.said.plus(passed))
    }
}

impl ServerClock {
    /// What the server's clock shows; none if it has to be asked.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.state.lock().now(Instant::now())
    }

    /// The server said this in the answer that has just come. Answers what its clock shows.
    pub(super) fn said(&self, said: Timestamp, asked: Instant) -> Timestamp {
        // It was heard now, however long this thread waits from here on.
        let heard = Instant::now();
        let quick = heard.saturating_duration_since(asked) <= QUICK;
        self.state.lock().said(said, heard, quick)
    }

    /// Grants say when they were made. Not what answers a request that is repeated: that may be old.
    pub(super) fn granted(&self, granted: &[Run], asked: Instant, repeat: bool) {
        let made = granted.iter().filter_map(|run| run.claimed_at).max();
        if let Some(made) = made.filter(|_| !repeat) {
            self.said(made, asked);
        }
    }
}

impl State {
    fn now(&mut self, now: Instant) -> Option<Timestamp> {
        let shows = self.heard?.by(now)?;
        Some(self.tell(shows, true))
    }

    fn said(&mut self, said: Timestamp, now: Instant, quick: bool) -> Timestamp {
        // Of two answers the one that was quicker is nearer to the truth. One that took long is no step back.
        let known = self.heard.and_then(|heard| heard.by(now));
        let is_nearer = match known {
            Some(known) => known < said || quick && known.since(said) >= STEP,
            None => quick,
        };
        if is_nearer {
            self.heard = Some(Heard { at: now, said });
        }
        let shows = self.heard.and_then(|heard| heard.by(now));
        self.tell(shows.unwrap_or(said), quick)
    }

    /// Nobody is told something earlier than anybody was before, unless the server's clock was set back: and that an
    /// answer that took long does not say.
    fn tell(&mut self, shows: Timestamp, quick: bool) -> Timestamp {
        let shows = match self.told {
            Some(told) if told > shows && told.since(shows) < STEP => told,
            _ => shows,
        };
        if quick || self.told.is_none_or(|told| told < shows) {
            self.told = Some(shows);
        }
        shows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A clock that was told 1,000 ms, and when.
    fn told() -> (State, Instant) {
        let (mut state, begin) = (State::default(), Instant::now());
        assert_eq!(state.said(Timestamp::from_ms(1000), begin, true), Timestamp::from_ms(1000));
        (state, begin)
    }

    #[test]
    fn own_l6_what_a_server_said_is_good_for_a_moment() {
        let (mut state, begin) = told();
        assert_eq!(state.now(begin + ms(40)), Some(Timestamp::from_ms(1040)));
        assert_eq!(state.now(begin + GOOD_FOR), Some(Timestamp::from_ms(1100)));
        assert_eq!(state.now(begin + GOOD_FOR + ms(1)), None, "it has to be asked");
    }

    #[test]
    fn own_l6_an_answer_that_took_longer_sets_nothing_back() {
        let (mut state, begin) = told();
        assert_eq!(state.now(begin + ms(50)), Some(Timestamp::from_ms(1050)));
        // Said by the server at 1,045, heard at 1,060 of its clock.
        assert_eq!(state.said(Timestamp::from_ms(1045), begin + ms(60), true), Timestamp::from_ms(1060));
        // The first answer is too old by now, this one was long under way: it goes on from there, and not back.
        let shows = state.now(begin + ms(100)).expect("good for the last time");
        let later = state.said(Timestamp::from_ms(1095), begin + ms(101), true);
        assert_eq!((shows, later), (Timestamp::from_ms(1100), Timestamp::from_ms(1100)));
        assert_eq!(state.now(begin + ms(111)), Some(Timestamp::from_ms(1105)));
    }

    #[test]
    fn own_l13_an_answer_that_took_long_is_good_for_who_asked_alone() {
        let clock = ServerClock::default();
        let long_ago = Instant::now().checked_sub(QUICK + ms(1)).expect("a machine that has run for a while");
        assert_eq!(clock.said(Timestamp::from_ms(1000), long_ago), Timestamp::from_ms(1000));
        assert_eq!(clock.now(), None);
    }

    #[test]
    fn own_l6_nobody_is_told_something_earlier_than_an_answer_that_took_long() {
        let (mut state, begin) = told();
        // Said by the server at 1,090 of its clock, and nobody else knows it as well.
        assert_eq!(state.said(Timestamp::from_ms(1090), begin + ms(70), false), Timestamp::from_ms(1090));
        assert_eq!(state.now(begin + ms(80)), Some(Timestamp::from_ms(1100)));
        // One that was under way for longer than a step is no step.
        assert_eq!(state.said(Timestamp::from_ms(50), begin + ms(85), false), Timestamp::from_ms(1105));
        assert_eq!(state.now(begin + ms(90)), Some(Timestamp::from_ms(1110)));
        // Nobody but who asked is told it when nothing else is known; and nobody something earlier after that.
        let late = begin + ms(500);
        assert_eq!(state.said(Timestamp::from_ms(1480), late, false), Timestamp::from_ms(1480));
        assert_eq!(state.now(late), None);
        assert_eq!(state.said(Timestamp::from_ms(1470), late + ms(1), true), Timestamp::from_ms(1480));
    }

    #[test]
    fn own_l8_a_step_of_the_servers_clock_is_followed() {
        let (mut state, begin) = told();
        let day = 86_400_000;
        assert_eq!(
            state.said(Timestamp::from_ms(1000 + day), begin + ms(10), true),
            Timestamp::from_ms(1000 + day)
        );
        assert_eq!(state.now(begin + ms(20)), Some(Timestamp::from_ms(1010 + day)));
        assert_eq!(state.said(Timestamp::from_ms(1030), begin + ms(30), true), Timestamp::from_ms(1030));
        assert_eq!(state.now(begin + ms(40)), Some(Timestamp::from_ms(1040)));
    }
}

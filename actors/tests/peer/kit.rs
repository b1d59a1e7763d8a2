//! What the tests of services share: a world per test, and parts whose life the test directs.
//!
//! Tests wait for facts: a line of the diary, a state of a service. `World::until` looks again after each
//! virtual millisecond; the paused clock moves only when nothing else can happen, so this takes no real time
//! and sees every state that lasts.

#![allow(dead_code, reason = "each of the test files that share it uses a part")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_actors::rules::{Backoff, BackoffSettings, Intensity, Patience, Strategy};
use tenure_actors::{
    Application, ApplicationSpec, CloseReport, Event, Generation, GenerationSpec, Recorder, ServiceInfo,
    ServiceSpec, ServiceState, Services, Verb,
};

mod part;

pub(crate) use part::*;

/// An application, the diary of its parts, and everything that its journal said.
pub(crate) struct World {
    pub(crate) application: Application,
    pub(crate) diary: Diary,
    recorder: Arc<Recorder>,
    parts: HashMap<String, Part>,
}

/// Describes a world before it is opened.
pub(crate) struct Plot {
    pub(crate) spec: ApplicationSpec,
    diary: Diary,
    parts: HashMap<String, Part>,
}

impl Plot {
    /// A generation of this strategy that bears any number of restarts.
    pub(crate) fn new(strategy: Strategy) -> Self {
        let generation = GenerationSpec::default().strategy(strategy).intensity(Intensity::Unlimited);
        let spec = ApplicationSpec { generation, backoff: Backoff::none(), ..ApplicationSpec::default() };
        Self { spec, diary: Diary::default(), parts: HashMap::new() }
    }

    pub(crate) fn limited(mut self, restarts: u32, period_ms: u64) -> Self {
        self.spec.generation.intensity = limited(restarts, period_ms);
        self
    }

    /// The application gives up at the first failure of a generation.
    pub(crate) fn once(mut self) -> Self {
        self.spec.intensity = limited(0, 1);
        self
    }

    pub(crate) fn part(&mut self, name: &str, kind: Kind) -> Part {
        let part = Part::new(name, kind, &self.diary);
        self.parts.insert(name.to_owned(), part.clone());
        part
    }

    /// Actors of these names, permanent, in this order.
    pub(crate) fn cast<const N: usize>(mut self, names: [&str; N]) -> (Self, [Part; N]) {
        let parts = names.map(|name| self.part(name, Kind::Actor));
        for part in &parts {
            self = self.with(part.spec());
        }
        (self, parts)
    }

    pub(crate) fn with(mut self, service: ServiceSpec) -> Self {
        self.spec.generation = self.spec.generation.service(service);
        self
    }

    /// The service of this name waits so long before each restart.
    pub(crate) fn with_backoff(mut self, name: &str, delay_ms: u64) -> Self {
        let services = std::mem::take(&mut self.spec.generation.services);
        let change = |service: ServiceSpec| {
            if service.name() == name { service.backoff(after_ms(delay_ms)) } else { service }
        };
        self.spec.generation.services = services.into_iter().map(change).collect();
        self
    }

    pub(crate) fn limits(mut self, change: impl FnOnce(&mut tenure_actors::Limits)) -> Self {
        change(&mut self.spec.generation.limits);
        self
    }

    pub(crate) async fn open(self) -> World {
        let application = Application::open(self.spec).await.expect("the application opens");
        let recorder = application.journal().record();
        World { application, diary: self.diary, recorder, parts: self.parts }
    }
}

pub(crate) fn limited(restarts: u32, period_ms: u64) -> Intensity {
    Intensity::limited(restarts, period_ms).expect("a period")
}

/// Always this delay.
pub(crate) fn after_ms(delay_ms: u64) -> Backoff {
    let settings = BackoffSettings {
        min_ms: delay_ms,
        max_ms: delay_ms,
        factor: 1.0,
        jitter: 0.0,
        ..Default::default()
    };
    Backoff::new(settings).expect("a back-off")
}

pub(crate) fn soon(patience_ms: u64) -> Patience {
    Patience::Time(patience_ms)
}

/// Lets so much virtual time go by: the paused clock jumps as soon as nothing else can happen.
pub(crate) async fn elapse(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// Lets everything happen that can happen without the clock.
pub(crate) async fn quiet() {
    elapse(Duration::from_millis(1)).await;
}

impl World {
    pub(crate) fn generation(&self) -> Generation {
        self.application.current()
    }

    pub(crate) fn services(&self) -> Services {
        self.generation().services()
    }

    pub(crate) fn get(&self, name: &str) -> Option<ServiceInfo> {
        self.services().get(name)
    }

    pub(crate) fn state(&self, name: &str) -> Option<ServiceState> {
        self.get(name).map(|service| service.state)
    }

    /// The current incarnation: `a#2`.
    pub(crate) fn incarnation(&self, name: &str) -> Option<String> {
        self.get(name)?.incarnation
    }

    /// Every service with its state and incarnation, in start order: `a running a#1`.
    pub(crate) fn cast(&self) -> Vec<String> {
        let line = |service: ServiceInfo| {
            let incarnation = service.incarnation.map(|name| format!(" {name}")).unwrap_or_default();
            format!("{} {}{incarnation}", service.name, service.state)
        };
        self.services().list().into_iter().map(line).collect()
    }

    /// Waits for a fact.
    pub(crate) async fn until(&self, fact: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            if holds(self) {
                return;
            }
            quiet().await;
        }
        panic!("not within a virtual minute: {fact}\n{:#?}\n{:#?}", self.cast(), self.diary.lines());
    }

    pub(crate) async fn until_running(&self, incarnation: &str) {
        let name = incarnation.split('#').next().unwrap();
        self.until(&format!("{incarnation} runs"), |world| {
            world.state(name) == Some(ServiceState::Running)
                && world.incarnation(name).as_deref() == Some(incarnation)
        })
        .await;
    }

    pub(crate) async fn until_state(&self, name: &str, state: ServiceState) {
        self.until(&format!("{name} is {state}"), |world| world.state(name) == Some(state)).await;
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(&format!("{name} is forgotten"), |world| world.get(name).is_none()).await;
    }

    /// Waits until this line is in the diary.
    pub(crate) async fn until_line(&self, line: &str) {
        self.until(line, |world| world.diary.lines().iter().any(|seen| seen == line)).await;
    }

    pub(crate) async fn until_epoch(&self, epoch: u64) {
        self.until(&format!("epoch {epoch}"), |world| world.generation().epoch().get() == epoch).await;
    }

    pub(crate) fn events(&self) -> Vec<Arc<Event>> {
        self.recorder.events()
    }

    /// The details of all events of this verb, as a transcript shows them.
    pub(crate) fn said(&self, verb: Verb) -> Vec<String> {
        let of_verb = |event: &Arc<Event>| (event.kind.verb() == verb).then(|| event.kind.to_string());
        self.events().iter().filter_map(of_verb).collect()
    }

    /// Closes everything and checks what must hold in every world; answers the last report.
    pub(crate) async fn end(self) -> Arc<CloseReport> {
        let report = self.application.close().await.expect("the application closes");
        assert_eq!(report.imbalance(), None);
        self.assert_deserted();
        report
    }

    /// Nothing of any part lives, and no two incarnations of one ever lived at once.
    pub(crate) fn assert_deserted(&self) {
        assert_eq!(self.services().list().len(), 0, "a closed generation shows no services");
        for (name, part) in &self.parts {
            assert_eq!(part.alive(), 0, "{name} still lives: {:?}", self.diary.lines());
            assert_eq!(part.overlaps(), 0, "two of {name} at once: {:?}", self.diary.lines());
            for context in part.contexts() {
                assert!(context.commit(|| ()).is_err(), "{name} can still commit");
            }
        }
    }
}

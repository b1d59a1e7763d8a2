//! Sessions, checked over every interleaving of three who call at once: who begins, continues, takes over, gives back
//! or hands over a task of a session, who ends, cancels or removes one, and who releases the session. Each of their
//! calls of the store is a step, and what they do between two calls are the verbs of the library themselves.
//!
//! What must never be, in any state: I9, I11, and that a session and its runs do not fit together (P12). Whatever it
//! came to, nothing is left when it was kept long enough (I10).

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};
use tenure::model::{RunStatus, Subject, Timestamp};
use tenure::ownership::{Acquire, Acquired, DeclaredLost, Forgotten, Held, Outcome, Published, TaskState};
use tenure::store::{PageRequest, PruneRequest, RunFilter, Store};

use crate::acts::{Act, BEFORE, Done, RETENTION, TTL, act, name, owner, session};
use crate::stage::{BEGIN_MS, Broken, Far, RunSeen, SessionSeen, Stage, at_once};

/// One step of the clock: over a lease and its grace, and as long as anything is kept.
const TICK: Duration = Duration::from_millis(TICK_MS);
const TICK_MS: u64 = 4000;
/// How the first task stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// There is no session.
    Nothing,
    /// It is somebody's.
    Held,
    Lost,
    Completed,
    /// It is no longer kept, and of its session nothing is left but its name.
    Expired,
}

struct Scene {
    stands: Stands,
    acts: &'static [Act],
    ticks: u8,
}

const fn scene(stands: Stands, acts: &'static [Act], ticks: u8) -> Scene {
    Scene { stands, acts, ticks }
}

static SCENES: &[Scene] = &[
    scene(Stands::Nothing, &[Act::Start, Act::StartNumber, Act::Release], 0),
    scene(Stands::Held, &[Act::Start, Act::Release, Act::Publish], 0),
    scene(Stands::Held, &[Act::Start, Act::Release, Act::CancelSession], 0),
    scene(Stands::Held, &[Act::StartNumber, Act::Release], 0),
    scene(Stands::Held, &[Act::Release, Act::Release], 0),
    scene(Stands::Held, &[Act::HandOver, Act::Release, Act::Publish], 0),
    scene(Stands::Held, &[Act::Declare, Act::Release], 1),
    scene(Stands::Lost, &[Act::Reinstate, Act::Release, Act::TakeOver], 0),
    scene(Stands::Lost, &[Act::Reinstate, Act::ReleaseIdle, Act::Start], 0),
    scene(Stands::Lost, &[Act::Reinstate, Act::Reap], 1),
    scene(Stands::Completed, &[Act::Continue, Act::Release, Act::CancelRun], 0),
    scene(Stands::Completed, &[Act::Continue, Act::Forget, Act::Release], 0),
    scene(Stands::Completed, &[Act::Continue, Act::Reap], 1),
    scene(Stands::Completed, &[Act::Release, Act::Reap], 1),
    scene(Stands::Expired, &[Act::Start, Act::Reap], 1),
    scene(Stands::Expired, &[Act::StartNumber, Act::Reap], 1),
];

/// One who calls, as others see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Called {
    act: Act,
    far: Far<Done>,
    /// The revision that a start has seen; 0 if there was no session.
    saw: Option<u64>,
    /// The revision of the session when it was looked at first.
    first: u64,
}

/// The world after some steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Seen {
    scene: usize,
    ticks: u8,
    session: Option<SessionSeen>,
    runs: Vec<(RunSeen, Option<Timestamp>)>,
    called: Vec<Called>,
    /// What is left when it was kept long enough, once everybody is done.
    left: Vec<String>,
}

/// A state: what is seen tells it from others, and the path goes back to it.
#[derive(Debug, Clone)]
struct World {
    seen: Seen,
    path: Vec<Step>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.seen.hash(state);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.seen == other.seen
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Tick,
    Call(usize),
}

struct Sessions {
    scenes: &'static [Scene],
    broken: Broken,
}

impl Sessions {
    /// Goes along a path from the beginning.
    fn play(&self, scene: usize, path: Vec<Step>) -> World {
        let Scene { stands, acts, ticks: most_ticks } = self.scenes[scene];
        let stage = Stage::new();
        let held = before(&stage, stands);
        let player = |who: usize| {
            let saw = Arc::default();
            // Whose cancels are bounded by the session is a matter of that verb alone.
            let of_another = self.broken == Broken::Unbounded && !matches!(acts[who], Act::CancelSession);
            let broken = if of_another { Broken::Nothing } else { self.broken };
            let what = (who, acts[who], broken);
            let (held, noted) = (held.clone(), Arc::clone(&saw));
            let verb = move |own, turn| act(own, turn, what, held, noted);
            (stage.player(broken, most_ticks == 0, verb), saw)
        };
        let mut players: Vec<_> = (0..acts.len()).map(player).collect();
        let mut ticks = 0;
        for step in &path {
            match step {
                Step::Tick => {
                    ticks += 1;
                    stage.clock.advance(TICK);
                }
                Step::Call(who) => players[*who].0.step(),
            }
        }
        let called = players.iter().zip(acts).map(|((player, saw), act)| Called {
            act: *act,
            far: player.far(),
            saw: *saw.lock(),
            first: player.first(),
        });
        let called: Vec<Called> = called.collect();
        let (session, runs) = (stage.session(), stage.runs());
        let over = called.iter().all(|called| matches!(called.far, Far::Done(_)));
        let left = if over { left(&stage, self.broken) } else { Vec::new() };
        World { seen: Seen { scene, ticks, session, runs, called, left }, path }
    }
}

/// How it stands when the curtain rises; and the token of the first task.
fn before(stage: &Stage, stands: Stands) -> Option<Held> {
    let own = stage.alone(Broken::Nothing);
    if stands == Stands::Nothing {
        return None;
    }
    let request = Acquire::new(session().task(1), owner(BEFORE), name(BEFORE), TTL);
    let Acquired::Acquired(held) = at_once(own.acquire(&request)).unwrap() else { panic!("it is free") };
    match stands {
        Stands::Nothing | Stands::Held => {}
        Stands::Lost => {
            stage.clock.advance(TICK);
            let lost = at_once(own.declare_lost(&session().task(1), 1, held.token.fence, None)).unwrap();
            assert!(matches!(lost, DeclaredLost::Lost { .. }));
        }
        Stands::Completed | Stands::Expired => {
            let published = at_once(own.publish(&held, Outcome::completed("done"))).unwrap();
            assert_eq!(published, Published::Committed);
        }
    }
    if stands == Stands::Expired {
        assert_eq!(at_once(own.forget(&session().task(1))).unwrap(), Forgotten::Forgotten);
    }
    Some(held)
}

/// I10: nobody comes back to it, and it is removed when it was kept long enough. Tells what is not.
fn left(stage: &Stage, broken: Broken) -> Vec<String> {
    let own = stage.alone(broken);
    stage.clock.advance(TICK);
    for (run, _) in stage.runs().iter().filter(|(run, _)| run.status.is_held()) {
        let key = session().task(run.task);
        let state = at_once(own.declare_lost(&key, run.run, run.fence, None)).unwrap();
        let (DeclaredLost::Lost { state } | DeclaredLost::Changed { state }) = state;
        assert!(!matches!(state.state, TaskState::Running { .. }), "{state:?}");
    }
    for _ in 0..3 {
        stage.clock.advance(TICK);
        at_once(own.reap(RETENTION)).unwrap();
    }
    let all = Duration::from_secs(1);
    let prune = PruneRequest { before: at_once(stage.store.now()).unwrap().plus(all), keep: 0, limit: 100 };
    at_once(stage.store.prune(prune)).unwrap();
    let mut left = at_once(stage.store.check(false)).unwrap();
    let runs = at_once(stage.store.runs(RunFilter::default(), PageRequest::default())).unwrap().items;
    left.extend(runs.iter().map(|run| format!("run \"{}\" is {}", run.run_id, run.status)));
    let tasks = at_once(stage.store.tasks(PageRequest::default())).unwrap().items;
    left.extend(tasks.iter().map(|(task, _)| format!("task \"{}\"", task.spec.task_id)));
    let events = at_once(stage.store.events(Subject::All, 0, usize::MAX)).unwrap();
    left.extend(events.iter().map(|event| format!("event {:?}", event.event)));
    left
}

impl Model for Sessions {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        (0..self.scenes.len()).map(|scene| self.play(scene, Vec::new())).collect()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let goes_on = |who: &usize| matches!(world.seen.called[*who].far, Far::Heard(_));
        steps.extend((0..world.seen.called.len()).filter(goes_on).map(Step::Call));
        if !steps.is_empty() && world.seen.ticks < self.scenes[world.seen.scene].ticks {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut path = world.path.clone();
        path.push(step);
        Some(self.play(world.seen.scene, path))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        [never_wrong(), what_a_release_meets(), what_a_release_spares()].into_iter().flatten().collect()
    }
}

fn never_wrong() -> Vec<Property<Sessions>> {
    vec![
        Property::always(I9, |_, world: &World| world.seen.nothing_of_before_lives()),
        Property::always(I9_START, |_, world: &World| {
            world.seen.begun().all(|(who, run)| world.seen.began_as_seen(who, run))
        }),
        Property::always(I10, |_, world: &World| world.seen.left.is_empty()),
        Property::always(I11, |_, world: &World| world.seen.cancelled_as_meant()),
        Property::always("P12: a session lists what is there, and all of it", |_, world: &World| {
            world.seen.fits_together()
        }),
    ]
}

/// None of it holds because nothing happened.
fn what_a_release_meets() -> Vec<Property<Sessions>> {
    vec![
        Property::sometimes(
            "a start is refused, for its session was released",
            |_, World { seen, .. }: &World| seen.came_to(Act::Start, Done::Released),
        ),
        Property::sometimes(
            "and one by a number that was given out before",
            |_, World { seen, .. }: &World| seen.came_to(Act::StartNumber, Done::Released),
        ),
        Property::sometimes("and a continuation", |_, World { seen, .. }: &World| {
            seen.came_to(Act::Continue, Done::Released)
        }),
        Property::sometimes("and who takes over", |_, World { seen, .. }: &World| {
            seen.came_to(Act::TakeOver, Done::Released)
        }),
        Property::sometimes(
            "a start is granted, and ends with the release",
            |_, World { seen, .. }: &World| {
                seen.came_to(Act::Start, Done::Granted) && seen.ended_by("release", 2)
            },
        ),
        Property::sometimes(
            "a continuation is granted, and ends with the release",
            |_, World { seen, .. }: &World| {
                seen.came_to(Act::Continue, Done::Granted) && seen.ended_by("release", 1)
            },
        ),
        Property::sometimes("what was handed over ends with the release", |_, World { seen, .. }: &World| {
            seen.came_to(Act::HandOver, Done::Granted) && seen.ended_by("release", 1)
        }),
        Property::sometimes("what was given back ends with the release", |_, World { seen, .. }: &World| {
            seen.came_to(Act::Reinstate, Done::Granted) && seen.ended_by("release", 1)
        }),
        Property::sometimes("nothing is given back after the release", |_, World { seen, .. }: &World| {
            seen.released() > 0 && seen.came_to(Act::Reinstate, Done::Refused)
        }),
        Property::sometimes("an outcome comes before the release", |_, World { seen, .. }: &World| {
            seen.released() > 0 && seen.came_to(Act::Publish, Done::Published)
        }),
        Property::sometimes("an outcome comes after the release", |_, World { seen, .. }: &World| {
            seen.released() > 0 && seen.came_to(Act::Publish, Done::Refused)
        }),
    ]
}

fn what_a_release_spares() -> Vec<Property<Sessions>> {
    vec![
        Property::sometimes(
            "a release meets something that runs, and is refused",
            |_, World { seen, .. }: &World| seen.came_to(Act::ReleaseIdle, Done::Refused),
        ),
        Property::sometimes(
            "a start follows a release that goes on, and is spared",
            |_, World { seen, .. }: &World| {
                let sealed = seen.session.as_ref().is_some_and(|session| session.revision > BEGIN_MS);
                seen.released() == 0 && sealed && seen.lives_at_last()
            },
        ),
        Property::sometimes(
            "S6.4: a start follows the release, and lives",
            |_, World { seen, .. }: &World| seen.released() > 0 && seen.lives_at_last(),
        ),
        Property::sometimes(
            "a cancel was meant for a session before its release",
            |_, World { seen, .. }: &World| {
                let told = seen.come_to(Act::CancelSession, Done::Told);
                told.is_some_and(|told| seen.released() > told.first) && seen.lives_at_last()
            },
        ),
        Property::sometimes(
            "a cancel was meant for a run before the one that goes on",
            |_, World { seen, .. }: &World| {
                let told = seen.come_to(Act::CancelRun, Done::Told);
                told.is_some() && seen.runs.iter().any(|(run, _)| run.run == 2 && run.status.is_held())
            },
        ),
        Property::sometimes("who continues is late, for it was removed", |_, World { seen, .. }: &World| {
            seen.come_to(Act::Continue, Done::Refused).is_some()
                && seen.come_to(Act::Reap, Done::Removed).is_some()
        }),
        Property::sometimes("a session is gone, and begun anew", |_, World { seen, .. }: &World| {
            seen.come_to(Act::Reap, Done::Removed).is_some()
                && seen.session.as_ref().is_some_and(|session| session.revision > TICK_MS)
        }),
    ]
}

const I9: &str = "I9: after a release returned nothing of before is anybody's";
const I9_START: &str = "I9: a start begins in the session that it has seen, and in no later one";
const I10: &str = "I10: what was kept long enough leaves nothing behind";
const I11: &str = "I11: a cancel meets nothing that began after what it was meant for";

impl Seen {
    /// Those of which a run is here, by what they have asked for.
    fn begun(&self) -> impl Iterator<Item = (&Called, &RunSeen)> {
        let by = |run: &RunSeen| (0..self.called.len()).find(|who| run.request_id == name(*who));
        self.runs.iter().filter_map(move |(run, _)| Some((&self.called[by(run)?], run)))
    }

    /// The highest revision that a release has answered; 0 if none did.
    fn released(&self) -> u64 {
        let answered = self.called.iter().filter_map(|called| match called.far {
            Far::Done(Done::Sealed(revision)) => Some(revision),
            _ => None,
        });
        answered.max().unwrap_or(0)
    }

    /// What was lost could be given back.
    fn nothing_of_before_lives(&self) -> bool {
        let before = |run: &RunSeen| !run.status.is_terminal() && run.revision < self.released();
        !self.runs.iter().any(|(run, _)| before(run))
    }

    /// Who saw no session begins one: at the store's clock, and not at what a release has left. So does who comes with
    /// a number alone, when the session that gave it out is gone.
    fn began_as_seen(&self, called: &Called, run: &RunSeen) -> bool {
        let begins_one = called.saw == Some(0) || called.act == Act::StartNumber;
        called.saw == Some(run.revision) || (begins_one && run.revision % TICK_MS == BEGIN_MS)
    }

    fn cancelled_as_meant(&self) -> bool {
        self.runs.iter().all(|(run, _)| match run.cancelled_by.as_deref() {
            None => true,
            Some("release") => {
                // Gone is the session of which nothing is left.
                self.session.as_ref().is_none_or(|session| run.revision < session.revision)
            }
            Some(_) => self.called.iter().any(|called| match called.act {
                Act::CancelSession => run.revision <= called.first,
                Act::CancelRun => run.run == 1,
                _ => false,
            }),
        })
    }

    fn fits_together(&self) -> bool {
        let listed = self.session.as_ref().map_or(&[][..], |session| &session.tasks);
        let latest = |task: u64| listed.iter().find(|(listed, _)| *listed == task).map(|(_, run)| *run);
        let is_there = |(task, run): &(u64, u32)| {
            self.runs.iter().any(|(kept, _)| (kept.task, kept.run) == (*task, *run))
        };
        listed.iter().all(is_there)
            && self.runs.iter().all(|(run, _)| latest(run.task).is_some_and(|latest| run.run <= latest))
    }

    fn come_to(&self, what: Act, done: Done) -> Option<&Called> {
        self.called.iter().find(|called| called.act == what && called.far == Far::Done(done))
    }

    fn came_to(&self, what: Act, done: Done) -> bool {
        self.come_to(what, done).is_some()
    }

    /// Whether a task ends by whom.
    fn ended_by(&self, whom: &str, task: u64) -> bool {
        let ended = |run: &RunSeen| run.task == task && run.status == RunStatus::Cancelled;
        self.runs.iter().any(|(run, _)| ended(run) && run.cancelled_by.as_deref() == Some(whom))
    }

    /// Whether something runs that began in the session as it is now.
    fn lives_at_last(&self) -> bool {
        let revision = self.session.as_ref().map(|session| session.revision);
        self.runs.iter().any(|(run, _)| run.status.is_held() && Some(run.revision) == revision)
    }
}

#[test]
fn own_i9_i10_i11_every_interleaving_of_three_who_call_at_once() {
    let checked =
        Sessions { scenes: SCENES, broken: Broken::Nothing }.checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    let states = checked.unique_state_count();
    assert!(states > 10_000, "{states} states are not much of a world");
}

/// The checker finds what goes wrong without one of the rules.
fn is_found(broken: Broken, scenes: &'static [Scene], what: &'static str) {
    let found = HasDiscoveries::AnyOf([what].into());
    let checked = Sessions { scenes, broken }.checker().threads(2).finish_when(found).spawn_bfs().join();
    checked.assert_any_discovery(what);
}

#[test]
fn own_i9_a_start_that_does_not_say_what_it_saw_is_found() {
    static SCENES: &[Scene] = &[scene(Stands::Held, &[Act::Start, Act::Release], 0)];
    is_found(Broken::Unsaid, SCENES, I9_START);
}

#[test]
fn own_i9_a_store_that_does_not_look_how_a_session_stands_is_found() {
    static SCENES: &[Scene] = &[scene(Stands::Held, &[Act::Start, Act::Release], 0)];
    is_found(Broken::Unlooked, SCENES, I9);
}

#[test]
fn own_i10_a_store_that_forgets_nothing_is_found() {
    static SCENES: &[Scene] = &[scene(Stands::Completed, &[Act::Forget], 0)];
    is_found(Broken::Kept, SCENES, I10);
}

#[test]
fn own_i11_a_cancel_of_a_session_without_a_bound_is_found() {
    static SCENES: &[Scene] = &[scene(Stands::Held, &[Act::Start, Act::Release, Act::CancelSession], 0)];
    is_found(Broken::Unbounded, SCENES, I11);
}

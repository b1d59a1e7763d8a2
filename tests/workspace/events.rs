//! `events.jsonl`.

use std::thread;

use proptest::prelude::*;
use serde_json::Value;
use tenure::model::Event;
use tenure::view::EventView;
use tenure::workspace::{Appended, Workspace, WorkspaceError};

use crate::records::{PATH, event, events, run_id};
use crate::{Place, refused};

/// The lines that these events are.
fn lines(events: &[Event]) -> Vec<u8> {
    let line = |event| serde_json::to_string(&EventView::from(event)).unwrap() + "\n";
    events.iter().map(line).collect::<String>().into_bytes()
}

fn kept(place: &Place) -> Vec<u8> {
    std::fs::read(place.inside("events.jsonl")).unwrap()
}

/// Appends as a caller does who has the store beside it: what is missing is read from there.
fn append_from_store(workspace: &Workspace, store: &[Event], new: &[Event]) -> Appended {
    match workspace.append_events(new) {
        Err(WorkspaceError::Gap { missing, .. }) => {
            let from = usize::try_from(missing - 1).unwrap();
            workspace.append_events(&store[from..]).unwrap()
        }
        answer => answer.unwrap(),
    }
}

#[test]
fn task_s9_events_are_appended_in_order_each_once() {
    let place = Place::new();
    let workspace = place.run();
    assert_eq!(workspace.last_event().unwrap(), 0);
    assert_eq!(workspace.append_events(&[]).unwrap(), Appended { written: 0, last: 0 });
    assert_eq!(workspace.append_events(&events(1..=2)).unwrap(), Appended { written: 2, last: 2 });
    assert_eq!(workspace.append_events(&events(1..=4)).unwrap(), Appended { written: 2, last: 4 });
    assert_eq!(workspace.append_events(&events(2..=3)).unwrap(), Appended { written: 0, last: 4 });
    assert_eq!(workspace.last_event().unwrap(), 4);
    assert_eq!(kept(&place), lines(&events(1..=4)));
}

#[test]
fn task_s9_a_gap_is_refused_with_the_first_number_that_is_missing() {
    let place = Place::new();
    let workspace = place.run();
    let missing = |answer: Result<Appended, WorkspaceError>| match answer {
        Err(WorkspaceError::Gap { missing, .. }) => missing,
        other => panic!("expected a gap, found {other:?}"),
    };
    assert_eq!(missing(workspace.append_events(&events([3]))), 1);
    workspace.append_events(&events(1..=2)).unwrap();
    assert_eq!(missing(workspace.append_events(&events([4]))), 3);
    assert_eq!(missing(workspace.append_events(&events([1, 2, 3, 5]))), 4);
    assert_eq!(missing(workspace.append_events(&events([4, 3]))), 3);
    assert_eq!(
        refused(workspace.append_events(&events([9]))),
        "the events of run \"r1\" cannot be appended: number 3 is missing; read on from there"
    );
    assert_eq!(kept(&place), lines(&events(1..=2)), "nothing of what was refused is there");
}

#[test]
fn task_s9_events_of_others_are_refused() {
    let place = Place::new();
    let workspace = place.run();
    let mut foreign = event(1);
    foreign.run_id = None;
    assert_eq!(
        refused(workspace.append_events(&[foreign])),
        "the workspace of run \"r1\" keeps nothing of a record that concerns no run"
    );
    workspace.append_events(&events(1..=3)).unwrap();
    let mut other = event(1);
    other.run_id = Some(run_id("r2"));
    assert_eq!(
        refused(place.root.run(&run_id("r2"), PATH).unwrap().append_events(&[other])),
        "the workspace of run \"r2\" keeps nothing of run \"r1\""
    );
    assert_eq!(kept(&place), lines(&events(1..=3)));
}

#[test]
fn task_s9_a_last_line_torn_at_any_byte_is_cut_off_and_written_again() {
    let place = Place::new();
    let workspace = place.run();
    let store = events(1..=4);
    let (before, whole) = (lines(&store[..2]), lines(&store[..3]));
    for torn in before.len()..whole.len() {
        std::fs::write(place.inside("events.jsonl"), &whole[..torn]).unwrap();
        assert_eq!(workspace.last_event().unwrap(), 2, "torn at {torn}");
        append_from_store(&workspace, &store, &store[3..]);
        assert_eq!(kept(&place), lines(&store), "torn at {torn}");
    }
}

#[test]
fn task_s9_a_gap_behind_a_torn_line_cuts_it_off_before_it_is_told() {
    let place = Place::new();
    let workspace = place.run();
    let mut torn = lines(&events(1..=2));
    torn.truncate(torn.len() - 1);
    std::fs::write(place.inside("events.jsonl"), &torn).unwrap();
    refused(workspace.append_events(&events([3])));
    assert_eq!(kept(&place), lines(&events([1])));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    /// However many events there are and whatever the end of a crash left: after one append the file holds
    /// exactly the stored events.
    #[test]
    fn task_s9_whatever_a_crash_left_one_append_makes_it_whole(
        count in 1_u64..6,
        long in 0_usize..9000,
        cut in any::<prop::sample::Index>(),
        left in prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..40), Just(vec![0; 5000])],
    ) {
        let mut store = events(1..=count);
        for event in &mut store {
            event.data = Value::String("x".repeat(long));
        }
        let mut bytes = lines(&store);
        bytes.truncate(cut.index(bytes.len() + 1));
        bytes.extend(left);
        let place = Place::new();
        let workspace = place.run();
        std::fs::write(place.inside("events.jsonl"), bytes).unwrap();
        let last = store.len() - 1;
        append_from_store(&workspace, &store, &store[last..]);
        prop_assert_eq!(kept(&place), lines(&store));
    }
}

#[test]
fn task_s12_12_two_writers_at_once_make_no_duplicate_and_no_disorder() {
    let place = Place::new();
    let store = events(1..=200);
    thread::scope(|scope| {
        for step in [1, 3, 7] {
            // Each as an instance of its own.
            let workspace = place.again().run(&run_id("r1"), PATH).unwrap();
            let store = &store;
            scope.spawn(move || {
                for new in store.chunks(step) {
                    append_from_store(&workspace, store, new);
                }
            });
        }
    });
    assert_eq!(kept(&place), lines(&store));
}

#[test]
fn task_s12_12_appending_leaves_what_is_there_alone_however_much_it_is() {
    let place = Place::new();
    let workspace = place.run();
    workspace.append_events(&events(1..=3)).unwrap();
    // A change far from the end is not looked at, and the file is the same file.
    let mut bytes = kept(&place);
    bytes[..5].fill(b'#');
    std::fs::write(place.inside("events.jsonl"), &bytes).unwrap();
    let opened_before = std::fs::File::open(place.inside("events.jsonl")).unwrap();
    workspace.append_events(&events([4])).unwrap();
    bytes.extend(lines(&events([4])));
    assert_eq!(kept(&place), bytes);
    assert_eq!(opened_before.metadata().unwrap().len(), u64::try_from(bytes.len()).unwrap());
}

#[test]
fn task_s9_a_file_that_was_damaged_by_more_than_a_line_is_begun_anew() {
    let place = Place::new();
    let workspace = place.run();
    let mut bytes = lines(&events(1..=2));
    bytes.extend(vec![b'x'; (8 << 20) + 1]);
    std::fs::write(place.inside("events.jsonl"), bytes).unwrap();
    append_from_store(&workspace, &events(1..=3), &events([3]));
    assert_eq!(kept(&place), lines(&events(1..=3)));
}

//! O1, O2, O4, O7 to O11, H1, H2, H4, and the limit.

use tenure_actors::{
    IdProblem, Limits, MAX_ID_BYTES, OperationFilter, OperationRegistration, OperationRequest, ReserveError,
    SessionId, session_key,
};

use crate::bench::{self, request};
use crate::via::{Via, both_ways};

fn busy_with(answer: &Result<impl std::fmt::Debug, ReserveError>) -> String {
    match answer {
        Err(ReserveError::Busy(holder)) => holder.operation.to_string(),
        other => panic!("expected busy, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn op_o01_a_reservation_is_seen_with_exactly_its_three_fields() {
    both_ways(async |via| {
        let request = OperationRequest::new("a", "compaction").unwrap().on_session("s").unwrap();
        let lease = via.reserve(request).await.unwrap();

        // Exhaustive on purpose: a fourth field does not compile (H4).
        let OperationRegistration { operation, owner, session } = via.get("a").await.unwrap();
        assert_eq!((operation.as_str(), owner.as_str()), ("a", "compaction"));
        assert_eq!(session, Some(SessionId::new("s").unwrap()));
        assert_eq!(via.list(&OperationFilter::default()).await, ["a"]);
        assert!(lease.is_held());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o02_a_held_key_answers_busy_with_its_holder_and_the_loser_is_not_visible() {
    both_ways(async |via| {
        let held = OperationRequest::new("a", "compaction").unwrap().on_session("s").unwrap();
        let lease = via.reserve(held).await.unwrap();
        let wanted = OperationRequest::new("b", "request").unwrap().on_session("s").unwrap();

        let refused = via.reserve(wanted).await;

        assert!(matches!(&refused, Err(ReserveError::Busy(holder)) if holder == lease.registration()));
        assert!(via.get("b").await.is_none());
        assert_eq!(via.list(&OperationFilter::default()).await, ["a"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o04_a_busy_key_leaves_the_other_keys_of_the_request_free() {
    both_ways(async |via| {
        let _a = via.reserve(request("a", &["k2"])).await.unwrap();

        assert_eq!(busy_with(&via.reserve(request("b", &["k1", "k2"])).await), "a");

        let c = via.reserve(request("c", &["k1"])).await;
        assert!(c.is_ok(), "k1 is free: {c:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o07_of_several_busy_keys_the_first_in_request_order_names_the_holder() {
    both_ways(async |via| {
        let _z = via.reserve(request("z", &["k1"])).await.unwrap();
        let _y = via.reserve(request("y", &["k2"])).await.unwrap();

        assert_eq!(busy_with(&via.reserve(request("b", &["k2", "k1"])).await), "y");
        assert_eq!(busy_with(&via.reserve(request("b", &["k1", "k2"])).await), "z");
        assert_eq!(busy_with(&via.reserve(request("b", &["free", "k2", "k1"])).await), "y");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o08_a_key_named_twice_counts_once() {
    both_ways(async |via| {
        let lease = via.reserve(request("a", &["k", "k", "k"])).await.unwrap();
        assert_eq!(busy_with(&via.reserve(request("b", &["k"])).await), "a");

        assert!(lease.release());
        assert!(via.reserve(request("b", &["k"])).await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o08_the_session_key_named_by_hand_is_the_one_of_on_session() {
    both_ways(async |via| {
        let session = SessionId::new("s").unwrap();
        let by_name = OperationRequest::new("a", "owner").unwrap().key(session_key(&session)).unwrap();
        let _a = via.reserve(by_name).await.unwrap();

        let by_session = OperationRequest::new("b", "owner").unwrap().on_session("s").unwrap();
        assert_eq!(busy_with(&via.reserve(by_session).await), "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o09_a_request_without_keys_is_invalid_and_names_the_field() {
    both_ways(async |via| {
        let refused = via.reserve(request("a", &[])).await;
        assert!(
            matches!(refused, Err(ReserveError::Invalid { field: "exclusivity keys", .. })),
            "{refused:?}"
        );
        assert!(via.get("a").await.is_none());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o09_a_request_without_exclusivity_says_so_and_excludes_nothing() {
    both_ways(async |via| {
        let a = via.reserve(request("a", &[]).without_exclusivity()).await;
        let b = via.reserve(request("b", &[]).without_exclusivity()).await;
        assert!(a.is_ok() && b.is_ok());
        assert_eq!(via.list(&OperationFilter::default()).await, ["a", "b"]);
    })
    .await;
}

#[test]
fn op_o09_an_unusable_id_is_invalid_and_names_its_field() {
    let long = "x".repeat(MAX_ID_BYTES + 1);
    for bad in ["", long.as_str(), "a\nb"] {
        let valid = || OperationRequest::new("a", "owner").unwrap();
        let refusals = [
            ("operation id", OperationRequest::new(bad, "owner").err()),
            ("owner id", OperationRequest::new("a", bad).err()),
            ("session id", valid().session(bad).err()),
            ("session id", valid().on_session(bad).err()),
            ("exclusivity key", valid().key(bad).err()),
        ];
        for (wanted, refusal) in refusals {
            match refusal {
                Some(ReserveError::Invalid { field, problem }) => {
                    assert_eq!(field, wanted);
                    assert!(problem.contains("expected"), "it says what was expected: {problem}");
                }
                other => panic!("{wanted} {bad:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn op_o09_the_longest_id_is_512_bytes() {
    let longest = "x".repeat(MAX_ID_BYTES);
    assert!(OperationRequest::new(longest.as_str(), "owner").unwrap().on_session(longest.as_str()).is_ok());
    let problem = SessionId::new(format!("{longest}x")).unwrap_err().problem;
    assert_eq!(problem, IdProblem::TooLong { bytes: 513 });
}

#[tokio::test(start_paused = true)]
async fn op_o10_an_active_id_is_a_duplicate_whatever_its_keys_and_wins_over_busy() {
    both_ways(async |via| {
        let a = via.reserve(request("a", &["k"])).await.unwrap();
        let _b = via.reserve(request("b", &["other"])).await.unwrap();

        for keys in [["free"], ["k"], ["other"]] {
            let refused = via.reserve(request("a", &keys)).await;
            assert!(
                matches!(&refused, Err(ReserveError::DuplicateOperation(existing)) if existing == a.registration()),
                "{keys:?}: {refused:?}"
            );
        }
        assert!(via.reserve(request("c", &["free"])).await.is_ok(), "the refused took nothing");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o11_an_owner_is_busy_with_itself() {
    both_ways(async |via| {
        let _a = via.reserve(request("a", &["k"])).await.unwrap();
        assert_eq!(busy_with(&via.reserve(request("a2", &["k"])).await), "a");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_h1_a_refused_request_takes_none_of_its_keys_wherever_the_busy_one_stands() {
    both_ways(async |via| {
        let _a = via.reserve(request("a", &["k2"])).await.unwrap();
        for keys in [["k2", "k1", "k3"], ["k1", "k2", "k3"], ["k1", "k3", "k2"]] {
            assert_eq!(busy_with(&via.reserve(request("b", &keys)).await), "a");
            assert!(via.reserve(request("c", &["k1", "k3"])).await.is_ok(), "{keys:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_h2_no_error_and_no_lease_tells_a_key() {
    both_ways(async |via| {
        let lease = via.reserve(request("a", &["secret"])).await.unwrap();
        let busy = via.reserve(request("b", &["secret"])).await.unwrap_err();
        let duplicate = via.reserve(request("a", &["secret"])).await.unwrap_err();
        for text in [
            format!("{lease:?}"),
            format!("{busy} {busy:?}"),
            format!("{duplicate} {duplicate:?}"),
            format!("{:?}", via.get("a").await),
        ] {
            assert!(!text.contains("secret"), "{text}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_h2_no_event_tells_a_key() {
    let application = bench::open().await;
    let recorder = application.journal().record();
    let operations = application.current().operations();
    let lease = operations.reserve(request("a", &["secret"])).await.unwrap();
    drop(operations.reserve(request("b", &["secret"])).await.unwrap_err());
    lease.release();
    bench::close(&application).await;
    for event in recorder.events() {
        assert!(!format!("{event:?} {}", event.kind).contains("secret"), "{event:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn op_limit_one_more_than_max_operations_is_refused_until_one_ends() {
    for by_messages in [false, true] {
        let limits = Limits { max_operations: Some(2), ..Limits::default() };
        let application = bench::open_with(limits).await;
        let via = Via::to(&application, by_messages);
        let a = via.reserve(request("a", &["k1"])).await.unwrap();
        let _b = via.reserve(request("b", &["k2"])).await.unwrap();

        match via.reserve(request("c", &["k3"])).await {
            Err(ReserveError::TooManyOperations { operation, limit: 2 }) => {
                assert_eq!(operation.as_str(), "c")
            }
            other => panic!("{other:?}"),
        }
        // What is in the way by name is told before the limit.
        assert_eq!(busy_with(&via.reserve(request("c", &["k1"])).await), "a");
        let twice = via.reserve(request("a", &["k3"])).await;
        assert!(matches!(twice, Err(ReserveError::DuplicateOperation(_))));

        a.release();
        assert!(via.reserve(request("c", &["k3"])).await.is_ok());
        bench::close(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn op_limit_of_nothing_admits_nothing() {
    let limits = Limits { max_operations: Some(0), ..Limits::default() };
    let application = bench::open_with(limits).await;
    let refused = application.current().operations().reserve(request("a", &["k"])).await;
    assert!(matches!(refused, Err(ReserveError::TooManyOperations { limit: 0, .. })));
    bench::close(&application).await;
}

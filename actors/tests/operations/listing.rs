//! O17 and O18: what a list shows, and that a session excludes nothing by itself (H5).

use tenure_actors::{OperationFilter, OperationLease, OperationRequest, OwnerId, SessionFilter, SessionId};

use crate::bench::request;
use crate::via::{Via, both_ways};

/// In this order: two owners on two sessions and application-wide.
async fn population(via: &Via) -> Vec<OperationLease> {
    let mut leases = Vec::new();
    for (operation, owner, session) in [
        ("x1", "x", Some("s1")),
        ("y1", "y", Some("s1")),
        ("x2", "x", Some("s2")),
        ("xw", "x", None),
        ("yw", "y", None),
    ] {
        let request = OperationRequest::new(operation, owner).unwrap().without_exclusivity();
        let request = match session {
            Some(session) => request.session(session).unwrap(),
            None => request,
        };
        leases.push(via.reserve(request).await.unwrap());
    }
    leases
}

fn session(id: &str) -> SessionFilter {
    SessionFilter::Only(SessionId::new(id).unwrap())
}

fn owner(id: &str) -> Option<OwnerId> {
    Some(OwnerId::new(id).unwrap())
}

#[tokio::test(start_paused = true)]
async fn op_o17_filters_are_conjunctive_and_application_wide_work_is_selected_separately() {
    both_ways(async |via| {
        let _leases = population(&via).await;
        let any = SessionFilter::Any;
        let wide = SessionFilter::ApplicationWide;
        let grid: [(SessionFilter, Option<OwnerId>, &[&str]); 10] = [
            (any.clone(), None, &["x1", "y1", "x2", "xw", "yw"]),
            (any.clone(), owner("x"), &["x1", "x2", "xw"]),
            (any, owner("nobody"), &[]),
            (session("s1"), None, &["x1", "y1"]),
            (session("s1"), owner("x"), &["x1"]),
            (session("s2"), owner("y"), &[]),
            (session("nothing"), None, &[]),
            (wide.clone(), None, &["xw", "yw"]),
            (wide.clone(), owner("y"), &["yw"]),
            (wide, owner("nobody"), &[]),
        ];
        for (session, owner, wanted) in grid {
            let filter = OperationFilter { session, owner };
            assert_eq!(via.list(&filter).await, wanted, "{filter:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o17_the_short_filters_are_what_they_say() {
    both_ways(async |via| {
        let _leases = population(&via).await;
        let of_session = OperationFilter::session(SessionId::new("s2").unwrap());
        let of_owner = OperationFilter::owner(OwnerId::new("y").unwrap());
        assert_eq!(via.list(&of_session).await, ["x2"]);
        assert_eq!(via.list(&of_owner).await, ["y1", "yw"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_h5_a_list_keeps_the_order_of_reservation_whatever_ends_in_between() {
    both_ways(async |via| {
        let mut leases = population(&via).await;
        leases.remove(1).release();
        let again = OperationRequest::new("y1", "y").unwrap().without_exclusivity();
        leases.push(via.reserve(again).await.unwrap());
        let listed = via.list(&OperationFilter::default()).await;
        assert_eq!(listed, ["x1", "x2", "xw", "yw", "y1"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o18_application_wide_work_without_the_session_key_keeps_nobody_out() {
    both_ways(async |via| {
        let _wide = via.reserve(request("wide", &["backup"])).await.unwrap();
        let on_session = OperationRequest::new("b", "owner").unwrap().on_session("s").unwrap();
        assert!(via.reserve(on_session).await.is_ok());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn op_o18_a_session_without_its_key_keeps_nobody_out() {
    both_ways(async |via| {
        let watching = OperationRequest::new("a", "owner").unwrap().session("s").unwrap();
        let _watching = via.reserve(watching.without_exclusivity()).await.unwrap();
        let on_session = || OperationRequest::new("b", "owner").unwrap().on_session("s").unwrap();
        let lease = via.reserve(on_session()).await;
        assert!(lease.is_ok());
        let again = OperationRequest::new("c", "owner").unwrap().on_session("s").unwrap();
        assert!(via.reserve(again).await.is_err());
    })
    .await;
}

//! Lists of very many: what is told of them is kept, or looked for within bounds, and says so.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tenure::RunRequest;
use tenure::clock::SystemClock;
use tenure::http::HttpOptions;
use tenure::model::TaskId;
use tenure::store::{MemoryStore, PageRequest, RunFilter, Store};

use crate::support::Served;

/// More than a store looks at for one page.
const MANY: usize = 20_500;

/// Very many runs of one task that nobody executes.
async fn many() -> (Served, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let served = Served::on(Arc::clone(&store), HttpOptions::default()).await;
    // What is mirrored to the workspace would take longest.
    let task = json!({ "task_id": "many", "agent_id": "nobody", "query": "q", "overlap_policy": "allow_parallel",
        "workspace_policy": { "write_run_json": false, "write_events_jsonl": false } });
    served.post("/background/tasks", task).await.expect(201);
    let many = TaskId::new("many").unwrap();
    let want = async |_| drop(served.tenure.run_now(&many, RunRequest::default()).await.unwrap());
    stream::iter(0..MANY).for_each_concurrent(512, want).await;
    (served, store)
}

/// What counters are kept of is exact, however much it is; the rest is counted up to a bound and says so.
#[tokio::test(flavor = "multi_thread")]
async fn field_d1_counts_of_very_many_runs_are_kept_or_marked_as_estimated() {
    let (served, _) = many().await;
    for kept in ["", "&task_id=many", "&status=queued", "&status=queued&status=running&task_id=many"] {
        let told = served.get(&format!("/background/runs?limit=1{kept}")).await;
        let told = told.expect(200);
        assert_eq!((&told["total"], &told["total_estimated"]), (&json!(MANY), &json!(null)), "{kept}");
    }
    for counted in ["&agent_id=nobody", "&trigger_type=manual", "&created_after=2020-01-01T00:00:00Z"] {
        let told = served.get(&format!("/background/runs?limit=1{counted}")).await;
        let told = told.expect(200);
        assert_eq!((&told["total"], &told["total_estimated"]), (&json!(10_000), &json!(true)), "{counted}");
    }
    let status = served.get("/background/status").await;
    assert_eq!(status.expect(200)["status_counts"]["queued"], MANY);
    served.end().await;
}

/// A filter that lets nothing through is the worst: it ends after a bounded look, says that there may be more, and goes
/// on from there.
#[tokio::test(flavor = "multi_thread")]
async fn field_d2_no_filter_looks_further_than_a_page_does() {
    let (served, store) = many().await;
    let told = served.get("/background/runs?text=nowhere").await;
    let told = told.expect(200);
    assert_eq!(
        (&told["runs"], &told["total"], &told["total_estimated"]),
        (&json!([]), &json!(0), &json!(true))
    );
    let nowhere = || RunFilter { text: Some("nowhere".into()), ..RunFilter::default() };
    let (mut looks, mut cursor) = (0, None);
    loop {
        let page = store.runs(nowhere(), PageRequest { limit: 10, cursor }).await.unwrap();
        assert!(page.items.is_empty());
        looks += 1;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert!((2..10).contains(&looks), "each look is bounded, and all of them come to an end: {looks}");
    for led in ["task_id=none", "status=failed", "status=completed&task_id=many", "session_id=none"] {
        let told = served.get(&format!("/background/runs?{led}")).await;
        let told = told.expect(200);
        assert_eq!((&told["runs"], &told["total"]), (&json!([]), &json!(0)), "{led}");
    }
    served.end().await;
}

//! What is said of agents: kept as it is, by name, and told to watchers.

use std::sync::Arc;

use super::support::agent;
use super::whole::hears;
use super::{Fixture, list};

list! {
    an_empty_store_knows_of_no_agents,
    what_is_said_of_an_agent_is_kept_as_it_is,
    what_is_said_again_replaces_what_was_said,
    an_agent_that_is_forgotten_is_gone_and_can_be_made_again,
    agents_are_listed_by_name,
    watchers_hear_of_what_is_said_of_agents,
    what_is_said_of_agents_survives_with_the_store_and_is_seen_by_all_who_share_it,
}

type Said = Vec<(String, String)>;

async fn said(f: &Fixture) -> Said {
    let agents = f.store.agents().await.unwrap();
    agents.into_iter().map(|(id, text)| (id.to_string(), text.to_string())).collect()
}

async fn say(f: &Fixture, name: &str, text: &str) {
    f.store.put_agent(&agent(name), Some(text.into())).await.unwrap();
}

fn pairs(of: &[(&str, &str)]) -> Said {
    of.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

async fn an_empty_store_knows_of_no_agents(f: Fixture) {
    assert_eq!(said(&f).await, []);
    f.store.put_agent(&agent("nobody"), None).await.unwrap();
    assert_eq!(said(&f).await, [], "to forget who was never known is no mistake");
}

async fn what_is_said_of_an_agent_is_kept_as_it_is(f: Fixture) {
    let long = "x".repeat(300_000);
    let odd = "{ \"kind\" :  \"chat\",\n \"n\": 1.10 }\u{0}\u{1f600}";
    say(&f, "odd", odd).await;
    say(&f, "empty", "").await;
    say(&f, "long", &long).await;
    assert_eq!(said(&f).await, pairs(&[("empty", ""), ("long", &long), ("odd", odd)]));
    f.sound().await;
}

async fn what_is_said_again_replaces_what_was_said(f: Fixture) {
    say(&f, "a", "one").await;
    say(&f, "b", "other").await;
    say(&f, "a", "two").await;
    say(&f, "a", "two").await;
    assert_eq!(said(&f).await, pairs(&[("a", "two"), ("b", "other")]));
}

async fn an_agent_that_is_forgotten_is_gone_and_can_be_made_again(f: Fixture) {
    say(&f, "a", "one").await;
    say(&f, "b", "other").await;
    f.store.put_agent(&agent("a"), None).await.unwrap();
    assert_eq!(said(&f).await, pairs(&[("b", "other")]));
    say(&f, "a", "again").await;
    assert_eq!(said(&f).await, pairs(&[("a", "again"), ("b", "other")]));
}

async fn agents_are_listed_by_name(f: Fixture) {
    for name in ["b", "a.1", "B", "_", "a-1"] {
        say(&f, name, name).await;
    }
    let names: Vec<String> = said(&f).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["B", "_", "a-1", "a.1", "b"]);
}

async fn watchers_hear_of_what_is_said_of_agents(f: Fixture) {
    let mut hints = f.store.watch();
    say(&f, "a", "one").await;
    // Others may be told of before it, and none of what does not concern agents says that it does.
    hears(&mut hints, |hint| hint.agents).await;
    f.store.put_agent(&agent("a"), None).await.unwrap();
    hears(&mut hints, |hint| hint.agents).await;
}

async fn what_is_said_of_agents_survives_with_the_store_and_is_seen_by_all_who_share_it(f: Fixture) {
    say(&f, "a", "one").await;
    let Some(reopen) = &f.reopen else {
        assert!(!f.store.capabilities().durable, "a durable store can be opened again");
        return;
    };
    let other = reopen().await;
    assert_eq!(other.agents().await.unwrap(), [(agent("a"), Arc::from("one"))]);
    let mut hints = f.store.watch();
    other.put_agent(&agent("b"), Some("other".into())).await.unwrap();
    if f.store.capabilities().watch_across {
        hears(&mut hints, |hint| hint.agents).await;
    }
    assert_eq!(said(&f).await, pairs(&[("a", "one"), ("b", "other")]));
    other.close().await.unwrap();
}

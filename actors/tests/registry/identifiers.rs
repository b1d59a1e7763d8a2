//! Ids and limits that are refused by name, before anything of the process is called.

use tenure_actors::{IdProblem, Limits, MAX_ID_BYTES, ProcessKind, ProcessSpec, StartError};

use super::support::{Play, end, open, open_within};

async fn refused_for(id: &str) -> (String, IdProblem) {
    let application = open().await;
    let registry = application.current().registry();
    let play = Play::quiet();
    let refused = registry.start(id, play.object()).await;
    let Err(StartError::Invalid(invalid)) = refused else { panic!("{refused:?}") };
    assert_eq!((play.starts(), play.closes(), registry.count()), (0, 0, 0));
    assert!(registry.lookup(id).is_none());
    end(&application).await;
    (invalid.to_string(), invalid.problem)
}

#[tokio::test(start_paused = true)]
async fn reg_an_empty_id_is_refused_by_name() {
    let (text, problem) = refused_for("").await;
    assert_eq!(problem, IdProblem::Empty);
    assert_eq!(text, "process id \"\" is empty, expected 1 to 512 bytes");
}

#[tokio::test(start_paused = true)]
async fn reg_an_id_over_512_bytes_is_refused_by_name() {
    let (text, problem) = refused_for(&"é".repeat(MAX_ID_BYTES / 2 + 1)).await;
    assert_eq!(problem, IdProblem::TooLong { bytes: 514 });
    assert!(
        text.starts_with("process id \"éé") && text.ends_with("has 514 bytes, expected at most 512"),
        "{text}"
    );
    assert!(text.len() < 200, "the text is cut");
}

#[tokio::test(start_paused = true)]
async fn reg_an_id_with_a_control_character_is_refused_by_name() {
    for (id, at) in [("a\nb", 1), ("\0", 0), ("ab\u{7f}", 2), ("é\u{85}", 2)] {
        let (text, problem) = refused_for(id).await;
        assert_eq!(problem, IdProblem::ControlCharacter { at }, "{id:?}");
        assert!(text.starts_with("process id ") && !text.contains(char::is_control), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn reg_an_id_of_512_bytes_is_accepted() {
    let application = open().await;
    let registry = application.current().registry();
    let id = "i".repeat(MAX_ID_BYTES);
    registry.start(id.as_str(), Play::quiet().object()).await.expect("at the limit");
    assert!(registry.lookup(&id).is_some());
    end(&application).await;
}

#[tokio::test(start_paused = true)]
async fn reg_a_role_that_is_no_identifier_is_refused_by_name() {
    let application = open().await;
    let registry = application.current().registry();
    let refused = registry.start("x", ProcessSpec::function("", |_| async { Ok(()) })).await;
    assert!(matches!(&refused, Err(StartError::Invalid(invalid)) if invalid.kind == "role"), "{refused:?}");
    assert_eq!(registry.count(), 0);
    end(&application).await;
}

each_kind! {
    #[tokio::test(start_paused = true)]
    async fn reg_a_generation_at_its_process_limit_refuses_by_name_and_admits_again_after_an_end(kind) {
        let application = open_within(Limits { max_processes: Some(2), ..Limits::default() }).await;
        let registry = application.current().registry();
        let first = registry.start("a", Play::quiet().spec(kind)).await.expect("below the limit");
        registry.start("b", Play::quiet().spec(kind)).await.expect("at the limit");
        let over = Play::quiet();
        let refused = registry.start("c", over.spec(kind)).await;
        let Err(StartError::TooManyProcesses { id, limit: 2 }) = &refused else { panic!("{refused:?}") };
        assert_eq!((id.as_str(), over.starts(), over.closes()), ("c", 0, 0));
        // A taken id is told first: it is the more precise answer.
        let taken = registry.start("a", over.spec(kind)).await;
        assert!(matches!(taken, Err(StartError::AlreadyExists { .. })), "{taken:?}");
        assert!(first.remove());
        registry.start("c", over.spec(kind)).await.expect("there is room again");
        assert_eq!(registry.count(), 2);
        end(&application).await;
    }
}

#[tokio::test(start_paused = true)]
async fn reg_a_failed_start_does_not_use_up_the_process_limit() {
    let application = open_within(Limits { max_processes: Some(1), ..Limits::default() }).await;
    let registry = application.current().registry();
    for round in 0..3 {
        let failed = registry.start("x", Play::broken(round).spec(ProcessKind::Actor)).await;
        assert!(matches!(failed, Err(StartError::StartFailed { .. })), "{failed:?}");
    }
    registry.start("x", Play::quiet().object()).await.expect("there is room");
    end(&application).await;
}

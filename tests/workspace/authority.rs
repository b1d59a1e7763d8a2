//! A fenced-out attempt can no longer write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use tenure::actors::{Application, ApplicationSpec, ProcessSpec};
use tenure::workspace::{Authority, AuthorityLost, GuardedWorkspace, WorkspaceError};
use tokio::sync::mpsc;

use crate::{Place, listed, refused};

/// Stands until it is revoked; revoking waits for the effect in progress.
#[derive(Clone, Default)]
struct Revocable(Arc<Mutex<bool>>);

impl Revocable {
    fn revoke(&self) {
        *self.0.lock() = true;
    }
}

impl Authority for Revocable {
    fn commit(&self, effect: &mut dyn FnMut()) -> Result<(), AuthorityLost> {
        let revoked = self.0.lock();
        if *revoked {
            return Err(AuthorityLost::new("the lease was taken over"));
        }
        effect();
        Ok(())
    }
}

#[test]
fn task_s9_whoever_lost_its_authority_changes_no_file() {
    let place = Place::new();
    let authority = Revocable::default();
    let guarded = GuardedWorkspace::new(place.run(), authority.clone());
    guarded.write("output.md", b"mine").unwrap();
    guarded.append("logs/log", b"mine").unwrap();
    authority.revoke();
    let before = listed(&place.run());
    for path in ["output.md", "logs/log", "new/folder/file"] {
        for told in [
            refused(guarded.write(path, b"late")),
            refused(guarded.append(path, b"late")),
            refused(guarded.remove_file(path)),
        ] {
            assert_eq!(told, format!("{path:?} was not written: the lease was taken over"));
        }
    }
    assert_eq!(listed(&place.run()), before, "not even a folder was made");
    assert_eq!(guarded.read("output.md", 4).unwrap(), b"mine");
    assert_eq!(guarded.read("logs/log", 4).unwrap(), b"mine");
    assert_eq!(place.half_done(), Vec::<String>::new());
    // The host still writes.
    place.run().write("output.md", b"taken over").unwrap();
}

#[test]
fn task_s9_no_write_takes_effect_after_the_authority_was_revoked() {
    for _ in 0..20 {
        let place = Place::new();
        let workspace = place.run();
        let authority = Revocable::default();
        let guarded = GuardedWorkspace::new(workspace.clone(), authority.clone());
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0_u64.. {
                    let written = guarded.write("output.md", &n.to_be_bytes());
                    if written.and_then(|()| guarded.append("log", &[1])).is_err() {
                        break;
                    }
                    begun.store(true, Ordering::SeqCst);
                }
            });
            while !begun.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            authority.revoke();
            let state = || (workspace.read("output.md", 8).unwrap(), workspace.read("log", 1 << 20).unwrap());
            let revoked = state();
            for _ in 0..50 {
                assert_eq!(state(), revoked);
            }
        });
    }
}

#[test]
fn task_s9_an_authority_that_lets_pass_and_does_nothing_is_no_success() {
    struct Idle;
    impl Authority for Idle {
        fn commit(&self, _effect: &mut dyn FnMut()) -> Result<(), AuthorityLost> {
            Ok(())
        }
    }
    let place = Place::new();
    let guarded = GuardedWorkspace::new(place.run(), Idle);
    let answer = guarded.write("a", b"a");
    assert!(matches!(answer, Err(WorkspaceError::AuthorityLost { .. })), "{answer:?}");
    assert_eq!(listed(&place.run()), ["artifacts/", "logs/"]);
}

#[tokio::test]
async fn task_s9_a_process_writes_until_its_generation_is_closed() {
    let place = Place::new();
    let workspace = place.run();
    let (give, mut given) = mpsc::channel(1);
    let application = Application::open(ApplicationSpec::default()).await.unwrap();
    let process = ProcessSpec::function("run", move |context| {
        let (give, workspace) = (give.clone(), workspace.clone());
        async move {
            let guarded = GuardedWorkspace::new(workspace, context.clone());
            guarded.blocking(|workspace| workspace.write("output.md", b"in time")).await?;
            drop(give.send(guarded).await);
            context.cancelled().await;
            Ok(())
        }
    });
    application.current().registry().start("run:r1:1", process).await.unwrap();
    let guarded = given.recv().await.unwrap();
    assert_eq!(guarded.read("output.md", 7).unwrap(), b"in time");
    let report = application.close().await.unwrap();
    let told = refused(guarded.blocking(|workspace| workspace.write("output.md", b"late")).await);
    assert!(told.contains("\"run:r1:1\" of epoch 1 may not commit: its authority was revoked"), "{told}");
    assert_eq!(guarded.read("output.md", 7).unwrap(), b"in time");
    assert_eq!(report.commits.applied, 1);
}

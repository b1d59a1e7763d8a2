//! A stage that panics or is killed leaves nothing behind: its workers and servers end with it, and their folders go.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::ground::GROUNDS;
use crate::servers::{self, own::Own};
use crate::stage::Stage;

/// The variable that makes this binary a stage that panics, or waits until it is killed.
pub(crate) const PANICS: &str = "TENURE_FAULTS_PANICS";

/// Longer than anything here takes.
const MOST: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Vec<Trial> {
    let in_a_server = GROUNDS.iter().filter_map(|ground| ground.server);
    let trial = |server: &'static str| {
        let name = format!("{server}::what_a_test_started_is_gone_after_it_panicked_or_was_killed");
        let there = servers::own::is_there(server);
        let ignored = !there && !servers::is_required(server);
        let both = move || {
            if !there {
                return Err(Failed::from("no server"));
            }
            [PANIC, WAIT].into_iter().try_for_each(|end| gone(server, end))
        };
        Trial::test(name, both).with_ignored_flag(ignored)
    };
    in_a_server.map(trial).collect()
}

/// How it ends.
const PANIC: &str = "panic";
const WAIT: &str = "wait";

fn gone(server: &str, end: &str) -> Result<(), Failed> {
    // All folders of its servers are in this one, also of those that another user runs.
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777))?;
    let mut child = Command::new(std::env::current_exe()?)
        .env(PANICS, format!("{end} {server}"))
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let said = child.stdout.take().ok_or("no output")?;
    let ids: Vec<String> = BufReader::new(said).lines().take(2).collect::<Result<_, _>>()?;
    if end == WAIT {
        let there = std::fs::read_dir(folder.path())?.count();
        if there < 2 {
            return Err(format!("{there} folders, of a server of its own and of one that is shared").into());
        }
        child.kill()?;
    }
    let ended = child.wait()?;
    if ended.success() || ids.len() != 2 {
        return Err(format!("it was to end badly after it had named two: {ended}, {ids:?}").into());
    }
    let began = Instant::now();
    for id in &ids {
        while std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !is_over(&stat)) {
            if began.elapsed() > MOST {
                return Err(format!("{id} of {ids:?} is still there").into());
            }
            std::thread::yield_now();
        }
    }
    // Who watches over a server removes its folder when the server has ended.
    while let Some(left) = std::fs::read_dir(folder.path())?.next() {
        if began.elapsed() > MOST {
            return Err(format!("{:?} is still there", left?.path()).into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// It has ended, and only waits to be counted.
fn is_over(stat: &str) -> bool {
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

/// Starts the servers that all tests of a binary share, one of its own and a worker, names the latter two, and panics
/// or waits.
pub(crate) fn panics() -> ExitCode {
    let how = std::env::var(PANICS).expect("how it ends");
    let (end, name) = how.split_once(' ').expect("how it ends, and a server's name");
    let mut grounds = GROUNDS.iter();
    let ground = grounds.find(|ground| ground.server == Some(name)).expect("a kind of store");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let _shared = ground.fresh();
        let server = Own::start(name).expect("a server");
        let mut stage = Stage::on(ground.in_server(server.url()), &[]).await;
        let setup = stage.setup.clone();
        let worker = stage.worker(&setup).await;
        let ids = format!("{}\n{}\n", server.id().expect("it runs"), stage.id(worker));
        let mut out = std::io::stdout();
        out.write_all(ids.as_bytes()).and_then(|()| out.flush()).expect("somebody who listens");
        // Also one that hangs.
        server.pause();
        assert_ne!(end, PANIC, "on purpose");
        std::future::pending().await
    })
}

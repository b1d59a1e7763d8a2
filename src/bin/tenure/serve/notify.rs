//! Tells the service manager that started this program how far it is, where it asked for that (`sd_notify`): that a
//! reload need not wait any longer, nor what comes after.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixDatagram;

/// Where a service manager listens; it is on this machine.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// What is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// It serves, and hears signals.
    Ready,
    /// It was told to stop.
    Stopping,
}

/// Tells it, if somebody wants to know.
pub(super) fn tell(stage: Stage) {
    let Some(address) = std::env::var_os(VARIABLE).filter(|address| !address.is_empty()) else { return };
    if let Err(error) = send(&address, stage) {
        tracing::warn!(%error, "the service manager was not told by {VARIABLE}");
    }
}

fn send(address: &OsString, stage: Stage) -> io::Result<()> {
    let line: &[u8] = match stage {
        Stage::Ready => b"READY=1",
        Stage::Stopping => b"STOPPING=1",
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not keep this program from serving.
    socket.set_nonblocking(true)?;
    match address.as_encoded_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            socket.send_to_addr(line, &std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
        }
        _ => {
            socket.send_to(line, OsStr::new(address))?;
        }
    }
    Ok(())
}

//! The two scripts: one writes, one reads. Both begin with what they have in common.
//!
//! They are sent by their digest (`EVALSHA`) and loaded when the server does not know them, instead of being kept
//! in it as a library of functions: every version of the program brings the text it was written with, so that
//! versions run side by side, forward and back, nothing of them is left in the server, and nobody needs the right
//! to administrate it.

/// Makes, moves and removes; refused by the server as a whole when it may not write.
pub(super) const WRITE: &str = concat!(
    "#!lua\n",
    include_str!("scripts/common.lua"),
    include_str!("scripts/write.lua"),
    include_str!("scripts/commit.lua"),
    include_str!("scripts/claim.lua"),
    include_str!("scripts/prune.lua"),
    include_str!("scripts/check.lua"),
    "return write[ARGV[1]](take())\n",
);

/// Reads, also from a server that may not be written.
pub(super) const READ: &str =
    concat!("#!lua flags=no-writes\n", include_str!("scripts/common.lua"), include_str!("scripts/read.lua"));

//! The three scripts: one writes, one tidies up, one reads. All begin with what they have in common.
//!
//! They are sent by their digest (`EVALSHA`) and loaded when the server does not know them, instead of being kept
//! in it as a library of functions: every version of the program brings the text it was written with, so that
//! versions run side by side, forward and back, nothing of them is left in the server, and nobody needs the right
//! to administrate it.

/// Makes, moves and removes; refused by the server as a whole when it may not write. Each operation is in a scope of
/// its own, since a script may have 200 local names.
pub(super) const WRITE: &str = concat!(
    "#!lua\n",
    include_str!("scripts/common.lua"),
    include_str!("scripts/write.lua"),
    "do\n",
    include_str!("scripts/commit.lua"),
    "do\n",
    include_str!("scripts/quick.lua"),
    "end\n",
    "end\n",
    "do\n",
    include_str!("scripts/claim.lua"),
    "end\n",
    "return write[ARGV[1]](take())\n",
);

/// What is seldom: removes what is old, and makes anew what is derived. Not in the script that writes: a script makes
/// its functions anew for each call, and these would cost that one as much as its own.
pub(super) const TIDY: &str = concat!(
    "#!lua\n",
    include_str!("scripts/common.lua"),
    include_str!("scripts/write.lua"),
    "do\n",
    include_str!("scripts/prune.lua"),
    "end\n",
    "do\n",
    include_str!("scripts/check.lua"),
    "end\n",
    "return write[ARGV[1]](take())\n",
);

/// Reads, also from a server that may not be written.
pub(super) const READ: &str =
    concat!("#!lua flags=no-writes\n", include_str!("scripts/common.lua"), include_str!("scripts/read.lua"));

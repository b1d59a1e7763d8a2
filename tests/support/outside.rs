//! Programs of others that tests use.

use crate::servers;

/// Whether there is this program. Where there is none that is told, and fails where `TENURE_TEST_REQUIRE` names it.
pub(crate) fn has(program: &str, without: &str) -> bool {
    let found = servers::programs(&[program], &[]).is_some();
    if !found {
        servers::skipped(program, &format!("no program {program}; {without}"));
        let required = servers::is_required(program);
        assert!(!required, "TENURE_TEST_REQUIRE names {program}, and there is none");
    }
    found
}

//! Claims that wait at one moment: those of the same agents share one search.

use std::collections::HashSet;
use std::sync::Arc;

use super::ClaimRequest;

/// A claim, with its place among the calls that are answered together.
pub(super) type Waiting<'r> = (usize, &'r ClaimRequest);

/// Those that share the search of the first, and those that come after it. Who asks again for what another of them is
/// about to be granted comes after it: only then is it known what that was (L17).
pub(super) fn with_first(claims: Vec<Waiting<'_>>) -> (Vec<Waiting<'_>>, Vec<Waiting<'_>>) {
    let Some(agents) = claims.first().map(|(_, request)| Arc::clone(&request.agents)) else {
        return (claims, Vec::new());
    };
    let mut asked = HashSet::with_capacity(claims.len());
    claims.into_iter().partition(|(_, request)| {
        let alike = Arc::ptr_eq(&agents, &request.agents) || agents == request.agents;
        let new = asked.insert((request.instance.bits(), request.nonce));
        alike && (new || !request.repeat)
    })
}

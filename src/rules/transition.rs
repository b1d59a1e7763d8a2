//! The arrows between run states (rulings, durable plane).

use crate::model::RunStatus::{self, *};

/// Whether a run may go from one state to the other in one step. Staying is no step.
#[must_use]
pub const fn allowed(from: RunStatus, to: RunStatus) -> bool {
    match from {
        // Running: reinstated before anybody claimed it.
        Queued => matches!(to, Claimed | Running | Cancelled | Skipped | Timeout),
        // Queued: released, or its owner is gone.
        Claimed => matches!(to, Running | Queued | Cancelled | Failed | Timeout),
        // Queued: interrupted.
        Running => matches!(
            to,
            Retrying | Queued | AwaitingApproval | Completed | Failed | Timeout | Cancelled | Lost
        ),
        Retrying => matches!(to, Claimed | Cancelled | Timeout),
        AwaitingApproval => matches!(to, Queued | Cancelled | Timeout),
        // Failed: with class lost, when the interruptions are spent. Running: reinstated.
        Lost => matches!(to, Queued | Failed | Running | Cancelled),
        Completed | Failed | Timeout | Cancelled | Skipped => false,
    }
}

/// Whether one write may take a run from one state to the other: it stays where it is and is not terminal,
/// goes one step, or is declared lost and goes on from there.
#[must_use]
pub const fn lawful(from: RunStatus, to: RunStatus) -> bool {
    let stays = from as u8 == to as u8 && !from.is_terminal();
    stays || allowed(from, to) || (allowed(from, Lost) && allowed(Lost, to))
}

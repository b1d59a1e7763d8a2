//! Failures of the kernel's own actors, which no user code can cause.

use crate::generation::{Generation, GenerationMessage};
use crate::operations::OperationsMessage;
use crate::registry::RegistryMessage;

/// Has the supervisor of a generation panic with this text, as its next message. Its generation closes, its
/// authority first, and the application opens the next epoch (design, section 2). False if it is gone already.
pub fn fail_supervisor(generation: &Generation, text: &str) -> bool {
    let supervisor = generation.core().actors.generation.get();
    supervisor.is_some_and(|supervisor| supervisor.cast(GenerationMessage::Panic(text.to_owned())).is_ok())
}

/// Has the registry of a generation panic with this text, as its next message (contract, R42). False if it is
/// gone already.
pub fn fail_registry(generation: &Generation, text: &str) -> bool {
    let registry = generation.core().actors.registry.get();
    registry.is_some_and(|registry| registry.cast(RegistryMessage::panic(text)).is_ok())
}

/// Has the operations actor of a generation panic with this text, as its next message. False if it is gone
/// already.
pub fn fail_operations(generation: &Generation, text: &str) -> bool {
    let operations = generation.core().actors.operations.get();
    operations.is_some_and(|operations| operations.cast(OperationsMessage::panic(text)).is_ok())
}

//! Has the kernel's own actors fail, as a test wants it.

use crate::generation::{Generation, GenerationMessage};
use crate::operations::OperationsMessage;
use crate::registry::RegistryMessage;

/// Has the registry of a generation panic with this text.
pub fn fail_registry(generation: &Generation, text: &str) {
    if let Some(registry) = generation.core().actors.registry.get() {
        let _ = registry.cast(RegistryMessage::panic(text));
    }
}

/// Has the operations of a generation panic with this text.
pub fn fail_operations(generation: &Generation, text: &str) {
    if let Some(operations) = generation.core().actors.operations.get() {
        let _ = operations.cast(OperationsMessage::panic(text));
    }
}

/// Has the supervisor of a generation panic with this text.
pub fn fail_supervisor(generation: &Generation, text: &str) {
    if let Some(supervisor) = generation.core().actors.generation.get() {
        let _ = supervisor.cast(GenerationMessage::Panic(text.to_owned()));
    }
}

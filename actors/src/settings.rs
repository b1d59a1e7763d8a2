//! What a generation and an application may be told. Every number has a default (rulings, Supervision).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rules::{Backoff, Intensity, Patience, Strategy};
use crate::service::ServiceSpec;

/// Bounds of one generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The longest a start may take. Default 5 s.
    pub start_bound: Duration,
    /// The longest the clean-up of a failed start may take, the longest an ended process is waited for while
    /// effects of it are in flight, and the longest a killed child is waited for. Default 1 s.
    pub cleanup_bound: Duration,
    /// The longest the close of a generation may take before what is left is killed. Default 30 s.
    pub close_deadline: Duration,
    /// How long a child that was told to stop is waited for, unless its own spec says otherwise. Default 5 s.
    pub patience: Patience,
    /// How many processes may be registered at once. Default: no limit.
    pub max_processes: Option<usize>,
    /// How many operations may be active at once. Default: no limit.
    pub max_operations: Option<usize>,
    /// How many services a generation may have. Default: no limit.
    pub max_services: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start_bound: Duration::from_secs(5),
            cleanup_bound: Duration::from_secs(1),
            close_deadline: Duration::from_secs(30),
            patience: Patience::default(),
            max_processes: None,
            max_operations: None,
            max_services: None,
        }
    }
}

/// What a generation is made of.
#[derive(Debug, Clone, Default)]
pub struct GenerationSpec {
    /// Its bounds.
    pub limits: Limits,
    /// Which siblings of a failed service are restarted with it. Default: none.
    pub strategy: Strategy,
    /// How many service restarts the generation bears, all services together, before it fails.
    pub intensity: Intensity,
    /// Seeds the jitter of back-off delays.
    pub seed: u64,
    /// Its services, in start order.
    pub services: Vec<ServiceSpec>,
}

impl GenerationSpec {
    /// The same with one more service, started after those before it.
    #[must_use]
    pub fn service(mut self, service: ServiceSpec) -> Self {
        self.services.push(service);
        self
    }

    /// The same with other bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same with another strategy.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// The same with another restart intensity.
    #[must_use]
    pub fn intensity(mut self, intensity: Intensity) -> Self {
        self.intensity = intensity;
        self
    }
}

/// What an application is made of.
#[derive(Debug, Clone)]
pub struct ApplicationSpec {
    /// What each of its generations is made of, until it is replaced by another spec.
    pub generation: GenerationSpec,
    /// How many failed generations are replaced before the application gives up.
    pub intensity: Intensity,
    /// How long it waits before it replaces a failed generation.
    pub backoff: Backoff,
    /// The most events a slow subscription is behind before it misses some. Default 1,024.
    pub journal_capacity: usize,
    /// The epoch of the first generation. A host that restarts may go on where it was. Default 1.
    pub first_epoch: crate::id::Epoch,
}

impl Default for ApplicationSpec {
    fn default() -> Self {
        Self {
            generation: GenerationSpec::default(),
            intensity: Intensity::default(),
            backoff: Backoff::default(),
            journal_capacity: 1024,
            first_epoch: crate::id::Epoch::FIRST,
        }
    }
}

impl From<GenerationSpec> for ApplicationSpec {
    fn from(generation: GenerationSpec) -> Self {
        Self { generation, ..Self::default() }
    }
}

//! The two ways to the operations: the handle, and the messages that it sends.

use ractor::ActorRef;
use tenure_actors::{
    Application, OperationFilter, OperationId, OperationLease, OperationRegistration, OperationRequest,
    Operations, OperationsMessage, ReserveError,
};

use crate::bench;

pub(crate) enum Via {
    Handle(Operations),
    Messages(ActorRef<OperationsMessage>),
}

/// Runs a scenario in an application of its own, once each way.
pub(crate) async fn both_ways(scenario: impl AsyncFn(Via)) {
    for by_messages in [false, true] {
        let application = bench::open().await;
        scenario(Via::to(&application, by_messages)).await;
        bench::close(&application).await;
    }
}

impl Via {
    pub(crate) fn to(application: &Application, by_messages: bool) -> Self {
        let operations = application.current().operations();
        if by_messages { Self::Messages(operations.actor_ref().unwrap()) } else { Self::Handle(operations) }
    }

    pub(crate) async fn reserve(&self, request: OperationRequest) -> Result<OperationLease, ReserveError> {
        match self {
            Self::Handle(operations) => operations.reserve(request).await,
            // A mailbox that is gone means closed.
            Self::Messages(actor) => {
                let call = ractor::call!(actor, |reply| OperationsMessage::Reserve { request, reply });
                call.unwrap_or(Err(ReserveError::Closed))
            }
        }
    }

    pub(crate) async fn get(&self, operation: &str) -> Option<OperationRegistration> {
        match self {
            Self::Handle(operations) => operations.get(operation),
            Self::Messages(actor) => {
                let operation = OperationId::new(operation).unwrap();
                ractor::call!(actor, |reply| OperationsMessage::Get { operation, reply }).unwrap_or(None)
            }
        }
    }

    pub(crate) async fn list(&self, filter: &OperationFilter) -> Vec<String> {
        let found = match self {
            Self::Handle(operations) => operations.list(filter),
            Self::Messages(actor) => {
                let filter = filter.clone();
                ractor::call!(actor, |reply| OperationsMessage::List { filter, reply }).unwrap_or_default()
            }
        };
        found.into_iter().map(|registration| registration.operation.to_string()).collect()
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Handle(operations) => operations.close().await,
            Self::Messages(actor) => {
                // An actor that is gone has cleared everything on its way out.
                let _ = ractor::call!(actor, |reply| OperationsMessage::Close { reply });
            }
        }
    }
}

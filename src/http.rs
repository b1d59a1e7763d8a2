//! The HTTP interface, as a router that any host may serve (contract durable-tasks.md, section 10).

-- What is said of agents that were made over HTTP. The text is the host's affair.
CREATE TABLE agents (agent_id TEXT PRIMARY KEY, definition TEXT NOT NULL) WITHOUT ROWID;

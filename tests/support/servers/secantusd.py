"""SecantusDB as tests run it: it answers what it always does, and takes half the time.

- It reads the list of a collection's indexes from its tables up to a hundred times for one command, which costs more
  than the command. Here it reads it once for each command.
- At every command it goes through all sessions there ever were, to find those that have lapsed, which takes a minute
  at least. Here it does so once a second.
- It serves connections with threads of one interpreter, which by default lets go of itself only after 5 ms, so that a
  connection that waits for news holds up every answer to another. Here it lets go sooner.
- It ends a transaction that nothing is asked of any more after 60 s, as MongoDB does unless it is told otherwise by
  transactionLifetimeLimitSeconds. Here it can be told, too.
- Now and then its storage engine finds only at a commit that another transaction was in the way, which it takes for an
  error of its own. Here each second commit fails so if TENURE_TEST_COMMITS_FAIL is set.
"""

import itertools
import os
import sys
import threading
import time

from secantus import cli, server
from secantus.serverparams import ServerParams
from secantus.sessions import SessionRegistry
from secantus.storage import Storage
from secantus.transactions import TransactionRegistry

SOONER = 0.0005
SELDOM = 1.0

# By thread: the indexes of each collection as they were read for the command that it is at.
at = threading.local()

# Those of the transactions that are in progress.
registries = []


def remember(answer):
    def answered(command, context):
        at.indexes = {}
        try:
            return answer(command, context)
        finally:
            at.indexes = None

    return answered


def from_memory(look):
    def indexes(storage, database, collection):
        known = getattr(at, "indexes", None)
        if known is None:
            return look(storage, database, collection)
        name = (database, collection)
        if name not in known:
            known[name] = list(look(storage, database, collection))
        return known[name]

    return indexes


def forget():
    if getattr(at, "indexes", None) is not None:
        at.indexes = {}


def forgetting(change):
    def changed(*arguments, **named):
        forget()
        try:
            return change(*arguments, **named)
        finally:
            forget()

    return changed


def forgetting_if_it_marks(mark):
    def marked(storage, database, collection, document, indexes, already):
        before = len(already)
        after = mark(storage, database, collection, document, indexes, already)
        if len(after) != before:
            forget()
        return after

    return marked


def seldom(look):
    """Of a method that looks for what has lapsed, and answers how much did; the server has one registry of each."""
    due = 0.0

    def looked(registry):
        nonlocal due
        if time.monotonic() < due:
            return 0
        due = time.monotonic() + SELDOM
        return look(registry)

    return looked


def noting(make):
    def made(registry, **named):
        make(registry, **named)
        registries.append(registry)

    return made


def lasting(apply):
    """Of the command that sets parameters, of which it knows two."""

    def applied(parameters, command, defaults):
        if (seconds := command.get("transactionLifetimeLimitSeconds")) is None:
            return apply(parameters, command, defaults)
        for registry in registries:
            registry._lifetime = float(seconds)
        return {"ok": 1.0}

    return applied


def failing(commit):
    turns = itertools.count(1)

    def committed(storage, handle, **named):
        if next(turns) % 2 == 0:
            storage.abort_user_transaction(handle)
            raise ValueError("Invalid argument")
        return commit(storage, handle, **named)

    return committed


CHANGES = [
    "create_index",
    "drop_all_indexes",
    "drop_collection",
    "drop_database",
    "drop_index",
    "rename_collection",
    "set_index_expiry",
    "set_index_options",
]

sys.setswitchinterval(SOONER)
server.dispatch = remember(server.dispatch)
Storage._iter_indexes = from_memory(Storage._iter_indexes)
Storage._maybe_mark_multikey = forgetting_if_it_marks(Storage._maybe_mark_multikey)
for name in CHANGES:
    setattr(Storage, name, forgetting(getattr(Storage, name)))
for registry in [SessionRegistry, TransactionRegistry]:
    registry._prune_locked = seldom(registry._prune_locked)
TransactionRegistry.__init__ = noting(TransactionRegistry.__init__)
ServerParams.apply = lasting(ServerParams.apply)
if os.environ.get("TENURE_TEST_COMMITS_FAIL"):
    Storage.commit_user_transaction = failing(Storage.commit_user_transaction)
sys.exit(cli.main())

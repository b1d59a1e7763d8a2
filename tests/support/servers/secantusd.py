"""SecantusDB as tests run it: it answers what it always does, and takes half the time.

It reads the list of a collection's indexes from its tables up to a hundred times for one command, which costs more
than the command. Here it reads it once for each command. And as it serves connections with threads of one
interpreter, which by default lets go of itself only after 5 ms, a connection that waits for news holds up every
answer to another: here it lets go sooner.
"""

import sys
import threading

from secantus import cli, server
from secantus.storage import Storage

SOONER = 0.0005

# By thread: the indexes of each collection as they were read for the command that it is at.
at = threading.local()


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
sys.exit(cli.main())

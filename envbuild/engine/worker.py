"""What runs in a spawned worker: shards in by a socket, results out, gone when the parent is."""

import os
import pickle
import queue
import signal
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any


def serve(descriptor: int) -> None:
    """Runs shard after shard; leaves as soon as the parent closes its end, even mid-shard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    connection = Connection(descriptor)
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, arrived), daemon=True).start()
    function = pickle.loads(arrived.get())
    while True:
        index, shard = pickle.loads(arrived.get())
        try:
            answer = pickle.dumps((index, False, function(shard)), protocol=5)
        except Exception as e:  # noqa: BLE001 - it is raised again in the parent
            answer = pickle.dumps((index, True, _portable(e)))
        connection.send_bytes(answer)


def _receive(connection: Connection, arrived: "queue.SimpleQueue[bytes]") -> None:
    try:
        while True:
            arrived.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)  # the parent is gone: nobody wants the result


def _portable(error: Exception) -> Exception:
    """The error itself where it survives pickling, with the worker's traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        copy: Any = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - some exceptions cannot be rebuilt from their arguments
        return RuntimeError("".join(traceback.format_exception(error)))
    return copy if isinstance(copy, Exception) else RuntimeError(str(error))

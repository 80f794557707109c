"""Runs statements from attacks.jsonl on a database and prints what each came to, one JSON a line.

    python -m tests.sql.run_attacks DATABASE CONTEXT OVER SECONDS < lines of attacks.jsonl

CONTEXT is `main`, `thread` or `fork`; OVER is `file`, or `view`: the database as an episode sees
it that shows the table `orders` alone. SECONDS limit the attacks that may time out. The last line
gives the peak memory of this process and of its workers.
"""

import json
import os
import resource
import sys
import threading
from pathlib import Path
from typing import Any

from envbuild.env.views import ViewCache
from envbuild.records.execution import Limits
from envbuild.sql.execution.session import Session

CHECK = "SELECT count(*), sum(amt) FROM orders"


def main() -> None:
    attacks = [json.loads(line) for line in sys.stdin]
    session = open_session(Path(sys.argv[1]), over=sys.argv[3])
    short = Limits(seconds=float(sys.argv[4]))
    expected = session.run(CHECK).rows
    if sys.argv[2] == "thread":
        worker = threading.Thread(target=run_all, args=(session, attacks, expected, short))
        worker.start()
        worker.join()
    elif sys.argv[2] == "fork":
        child = os.fork()
        if not child:
            run_all(session, attacks, expected, short)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        return
    else:
        run_all(session, attacks, expected, short)


def open_session(path: Path, *, over: str) -> Session:
    if over == "file":
        return Session.open_file(path)
    return ViewCache().open(path, ("orders",)).session


def run_all(
    session: Session, attacks: list[dict[str, Any]], expected: object, short: Limits
) -> None:
    """Runs each attack, with the `short` limits if a timeout is one of its allowed outcomes."""
    for attack in attacks:
        limits = short if "timeout" in attack["outcomes"] else session.limits
        result = session.run(statement(attack), limits=limits)
        print(
            json.dumps(
                {
                    "id": attack["id"],
                    "outcome": result.outcome,
                    "error": result.error[:200],
                    "leaks": any(text in str(result) for text in ("hidden_fees", "tell-no-one")),
                    "next": session.run(CHECK).rows == expected,
                    "kib": own_peak(),
                }
            )
        )
    session.close()
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    peak = {"own_kib": own_peak(), "workers_kib": workers, "threads": threading.active_count()}
    print(json.dumps(peak))


def own_peak() -> int:
    """This program's own peak in KiB; ru_maxrss would count the process that started it too."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def statement(attack: dict[str, Any]) -> str:
    """The attack's SQL; long ones are spelt as [before, unit, times, after]."""
    if "repeat" in attack:
        before, unit, times, after = attack["repeat"]
        return str(before + unit * times + after)
    return str(attack["sql"])


if __name__ == "__main__":
    main()

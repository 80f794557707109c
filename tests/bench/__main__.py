"""`python -m tests.bench [STAGE…] [--rounds N] [--json]`: each stage on seeded inputs."""

import argparse
import json
import os
import platform

from envbuild.sql.connect import SQLITE_VERSION
from tests.bench import STAGES, measure_stage


def main() -> None:
    """Measures the stages asked for and prints each figure on a line of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    parser.add_argument("--rounds", type=int, default=5, help="medians over this many")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    asked = parser.parse_args()
    machine = {
        "python": platform.python_version(),
        "sqlite": SQLITE_VERSION,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
    }
    stages = {
        name: list(measure_stage(name, rounds=asked.rounds)) for name in asked.stages or STAGES
    }
    if asked.json:
        print(json.dumps({"machine": machine, "rounds": asked.rounds, "stages": stages}))
        return
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    for name, lines in stages.items():
        print(f"\n{name}")
        for line in lines:
            print(f"  {line['what']}")
            for key, value in line.items():
                if key != "what":
                    figure = f"{value:,.3g}" if isinstance(value, float) else str(value)
                    print(f"    {key:<28} {figure:>10}")


if __name__ == "__main__":
    main()

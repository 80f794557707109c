"""`envbuild compare`: paired statistics over evaluations."""

from typing import Annotated

import typer

from envbuild.cli.options import JsonOption, SeedOption, print_json


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("compare")(compare)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="EVALUATION",
            help="Two or more folders that `envbuild evaluate` wrote into; several seeds as A1,A2.",
        ),
    ],
    rule: Annotated[str, typer.Option("--rule", help="official, strict or hidden.")] = "official",
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Paired statistics on the questions two policies share, corrected over all pairs.

    Example: envbuild compare base/ tuned/
    """
    from envbuild.evaluate.compare import compare_all, read_sides, side_noise

    read = read_sides(sides, rule=rule)
    found = compare_all(read, seed=seed)
    noise = {side.name: floor for side in read if (floor := side_noise(side))}
    if json:
        print_json("compare", {"rule": rule, "comparisons": found, "noise": noise})
        return
    from envbuild.cli.tables import print_table

    (judged,) = read[0].rules  # one: sides of several are refused
    score = "EX" if rule == "official" else judged
    family = f"{len(found)} comparison{'s' if len(found) > 1 else ''} in this family"
    for c in found:
        print_table(
            ("", "value"),
            [
                ("questions both scored (left out)", f"{c.questions} ({c.left_out})"),
                (f"{score} of {c.first}", f"{c.first_score:.3f}"),
                (f"{score} of {c.second}", f"{c.second_score:.3f}"),
                ("delta", f"{c.delta:+.3f}"),
                ("only the first / only the second right", f"{c.only_first} / {c.only_second}"),
                (f"p ({c.test})", _p(c.p)),
                ("p after Holm / Benjamini-Hochberg", f"{_p(c.holm)} / {_p(c.benjamini_hochberg)}"),
                ("bootstrap 95 % of delta, questions", f"{c.low:+.3f} to {c.high:+.3f}"),
                (
                    "bootstrap 95 % of delta, databases",
                    f"{c.clustered_low:+.3f} to {c.clustered_high:+.3f}",
                ),
                (
                    "smallest delta found with power 0.8",
                    "-" if c.detectable is None else f"{c.detectable:.3f}",
                ),
            ],
            title=f"{c.first} against {c.second} by {judged} ({family})",
            right=(1,),
        )
    for name, floor in noise.items():
        typer.echo(
            f"{name}: {floor.runs} runs flip {floor.flipped:.1%} of {floor.questions} questions; "
            f"a delta below {floor.difference:.3f} is within test-retest noise"
        )


def _p(value: float) -> str:
    return "<0.0001" if value < 0.00005 else f"{value:.4f}"

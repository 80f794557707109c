"""Policies compared in pairs on the questions they share, corrected for the number of pairs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

import msgspec

from envbuild.errors import CorpusFolderError, UsageError
from envbuild.evaluate.statistics import (
    NoiseFloor,
    benjamini_hochberg,
    count_discordant,
    holm,
    mcnemar_exact,
    minimum_detectable_effect,
    noise_floor,
    paired_bootstrap,
    sign_flip_test,
)
from envbuild.io.parquet import iter_records
from envbuild.records.evaluation import Comparison, QuestionVerdict

VERDICTS_FILE = "evaluation.parquet"
RULES = ("official", "strict")


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's runs on one set of questions."""

    name: str
    runs: tuple[dict[str, float], ...]
    """Per run: question_id -> share of its candidates that are right; the unscored are absent."""
    databases: dict[str, str]
    """question_id -> db_id, for clustering."""


def read_side(text: str, *, rule: str = "official") -> Side:
    """One side from `FOLDER` or, for several seeds, `FOLDER,FOLDER,…`.

    A folder is one that `envbuild evaluate` wrote evaluation.parquet into; the file itself will do.
    Raises UsageError for an unknown rule or an empty side, CorpusFolderError for a missing file.
    """
    if rule not in RULES:
        raise UsageError(f"--rule takes {' or '.join(RULES)}; got {rule!r}")
    paths = [Path(part) for part in text.split(",") if part]
    if not paths:
        raise UsageError("a side of a comparison needs at least one folder")
    databases: dict[str, str] = {}
    runs = []
    for path in paths:
        verdicts = list(iter_records(_verdicts_file(path), QuestionVerdict))
        databases.update((_key(v), f"{v.corpus}/{v.db_id}") for v in verdicts)
        runs.append(_means(verdicts, rule=rule))
    return Side(name=_name(paths), runs=tuple(runs), databases=databases)


def compare_all(sides: Sequence[Side], *, seed: int = 0) -> list[Comparison]:
    """Every pair of sides, with p-values adjusted over all the pairs compared.

    Raises UsageError for fewer than two sides, or a pair that shares no scored question.
    """
    if len(sides) < 2:
        raise UsageError("compare needs at least two evaluations")
    found = [_compare(first, second, seed=seed) for first, second in combinations(sides, 2)]
    p_values = [comparison.p for comparison in found]
    adjusted = zip(found, holm(p_values), benjamini_hochberg(p_values), strict=True)
    return [
        msgspec.structs.replace(comparison, holm=family, benjamini_hochberg=discovery)
        for comparison, family, discovery in adjusted
    ]


def side_noise(side: Side) -> NoiseFloor | None:
    """Test-retest noise of a side with several runs; None for one run."""
    if len(side.runs) < 2:
        return None
    shared = sorted(set.intersection(*(set(run) for run in side.runs)))
    return noise_floor([[run[key] for key in shared] for run in side.runs])


def _compare(first: Side, second: Side, *, seed: int) -> Comparison:
    left, right = _over_runs(first), _over_runs(second)
    shared = sorted(left.keys() & right.keys())
    if not shared:
        raise UsageError(
            f"{first.name} and {second.name} share no scored question: were both run on the same "
            "manifest and split?"
        )
    a, b = [left[key] for key in shared], [right[key] for key in shared]
    single = all(value in (0.0, 1.0) for value in (*a, *b))
    discordant = count_discordant(
        [x > y for x, y in zip(a, b, strict=True)], [y > x for x, y in zip(a, b, strict=True)]
    )
    differing = discordant.only_first + discordant.only_second
    plain = paired_bootstrap(a, b, seed=seed)
    databases = [first.databases.get(key) or second.databases[key] for key in shared]
    clustered = paired_bootstrap(a, b, clusters=databases, seed=seed)
    return Comparison(
        first=first.name,
        second=second.name,
        questions=len(shared),
        left_out=len(left.keys() ^ right.keys())
        + _unscored(first, left)
        + _unscored(second, right),
        first_score=sum(a) / len(a),
        second_score=sum(b) / len(b),
        delta=(sum(b) - sum(a)) / len(a),
        only_first=discordant.only_first,
        only_second=discordant.only_second,
        test="mcnemar_exact" if single else "sign_flip",
        p=mcnemar_exact(discordant) if single else sign_flip_test(a, b, seed=seed),
        holm=1.0,
        benjamini_hochberg=1.0,
        low=plain.low,
        high=plain.high,
        clustered_low=clustered.low,
        clustered_high=clustered.high,
        detectable=minimum_detectable_effect(len(shared), differing / len(shared)),
    )


def _over_runs(side: Side) -> dict[str, float]:
    """question_id -> mean over the runs; only questions that every run scored."""
    shared = set.intersection(*(set(run) for run in side.runs))
    return {key: sum(run[key] for run in side.runs) / len(side.runs) for key in shared}


def _unscored(side: Side, scored: dict[str, float]) -> int:
    return len(side.databases.keys() - scored.keys())


def _means(verdicts: Iterable[QuestionVerdict], *, rule: str) -> dict[str, float]:
    candidates: dict[str, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        correct = verdict.official_correct if rule == "official" else verdict.strict_correct
        if correct is not None:
            candidates[_key(verdict)].append(correct)
    return {key: sum(values) / len(values) for key, values in candidates.items()}


def _key(verdict: QuestionVerdict) -> str:
    return f"{verdict.corpus}/{verdict.question_id}" if verdict.corpus else verdict.question_id


def _verdicts_file(path: Path) -> Path:
    file = path / VERDICTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise CorpusFolderError(
            f"no {VERDICTS_FILE} in {path}: run `envbuild evaluate {path}` first"
        )
    return file


def _name(paths: Sequence[Path]) -> str:
    names = [path.parent.name if path.is_file() else path.name or str(path) for path in paths]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

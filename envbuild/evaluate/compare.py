"""Policies compared in pairs on the questions they share, corrected for the number of pairs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
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
from envbuild.records.execution import Verdict

VERDICTS_FILE = "evaluation.parquet"
Key = tuple[str, str]
"""A question's corpus and id."""
RULES: dict[str, Callable[[QuestionVerdict], bool | None]] = {
    "official": lambda verdict: verdict.official_correct,
    "strict": lambda verdict: verdict.strict_correct,
    "hidden": lambda verdict: verdict.hidden == Verdict.EQUAL if verdict.hidden else None,
}
"""Whether an answer is right by each rule; None where it says nothing of it."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's runs on one set of questions."""

    name: str
    runs: tuple[dict[Key, float], ...]
    """Per run: question -> share of its candidates that are right; the unscored are absent."""
    databases: dict[Key, str]
    """Question -> db_id, for clustering."""
    rules: tuple[str, ...] = ()
    """Verdict rules its answers were judged by."""


def read_side(text: str, *, rule: str = "official") -> Side:
    """One side from `FOLDER` or, for several seeds, `FOLDER,FOLDER,…`.

    A folder is one that `envbuild evaluate` wrote evaluation.parquet into; the file itself will do.
    Raises UsageError for an unknown rule, an empty side or one that the rule says nothing of,
    CorpusFolderError for a missing file.
    """
    if rule not in RULES:
        raise UsageError(f"--rule takes {', '.join(RULES)}; got {rule!r}")
    paths = [Path(part) for part in text.split(",") if part]
    if not paths:
        raise UsageError("a side of a comparison needs at least one folder")
    databases: dict[Key, str] = {}
    runs: list[dict[Key, float]] = []
    rules: set[str] = set()
    for path in paths:
        verdicts = list(iter_records(_verdicts_file(path), QuestionVerdict))
        databases.update((v.key, f"{v.corpus}/{v.db_id}") for v in verdicts)
        rules.update(v.official_name if rule == "official" else f"{rule}@1" for v in verdicts)
        runs.append(_means(verdicts, rule=rule))
        if rule == "hidden" and not runs[-1]:
            raise UsageError(
                f"{path} carries no hidden@1 verdict: its questions have no scored variant. Build "
                "the manifest with --variants N, roll out, and evaluate again"
            )
    named = _name(paths)
    return Side(name=named, runs=tuple(runs), databases=databases, rules=tuple(sorted(rules)))


def read_sides(texts: Sequence[str], *, rule: str = "official") -> list[Side]:
    """`read_side` of each; sides of one folder name are called by what was given for them."""
    sides = [read_side(text, rule=rule) for text in texts]
    names = Counter(side.name for side in sides)
    return [
        msgspec.structs.replace(side, name=text) if names[side.name] > 1 else side
        for side, text in zip(sides, texts, strict=True)
    ]


def compare_all(sides: Sequence[Side], *, seed: int = 0) -> list[Comparison]:
    """Every pair of sides, with p-values adjusted over all the pairs compared.

    Raises UsageError for fewer than two sides, sides judged by different rules, or a pair that
    shares no scored question.
    """
    if len(sides) < 2:
        raise UsageError("compare needs at least two evaluations")
    rules = sorted({rule for side in sides for rule in side.rules})
    if len(rules) > 1:
        raise UsageError(
            f"these evaluations were judged by different rules ({', '.join(rules)}): evaluate them "
            "by one, or compare with --rule strict"
        )
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
        left_out=len((first.databases.keys() | second.databases.keys()) - set(shared)),
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
        detectable=minimum_detectable_effect(len(shared), differing / len(shared))
        if differing
        else None,
    )


def _over_runs(side: Side) -> dict[Key, float]:
    """Question -> mean over the runs; only questions that every run scored."""
    shared = set.intersection(*(set(run) for run in side.runs))
    return {key: sum(run[key] for run in side.runs) / len(side.runs) for key in shared}


def _means(verdicts: Iterable[QuestionVerdict], *, rule: str) -> dict[Key, float]:
    candidates: dict[Key, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        correct = RULES[rule](verdict)
        if correct is not None:
            candidates[verdict.key].append(correct)
    return {key: sum(values) / len(values) for key, values in candidates.items()}


def _verdicts_file(path: Path) -> Path:
    if not path.exists():
        raise CorpusFolderError(
            f"no folder {path}: give one that `envbuild evaluate` has written into"
        )
    file = path / VERDICTS_FILE if path.is_dir() else path
    if not file.is_file():
        raise CorpusFolderError(
            f"no {VERDICTS_FILE} in {path}: run `envbuild evaluate {path}` first"
        )
    return file


def _name(paths: Sequence[Path]) -> str:
    names = [path.parent.name if path.is_file() else path.name or str(path) for path in paths]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

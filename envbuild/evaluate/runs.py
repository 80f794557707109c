"""Whole evaluations: of an episodes folder, and of a predictions file over a benchmark's folder."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from envbuild.corpora.source import read_source
from envbuild.engine.seeds import shuffled
from envbuild.errors import CorpusFolderError, SourceError, UsageError
from envbuild.evaluate.answers import (
    Predictions,
    questions_in_place,
    quote_some,
    read_predictions,
)
from envbuild.evaluate.episodes import judge_episodes
from envbuild.evaluate.predicted import BENCHMARKS, judge_predictions, load_benchmark
from envbuild.evaluate.report import build_rung, evaluate_answers
from envbuild.io.episodes import (
    BEGUN,
    INDEX,
    JOURNAL,
    check_episodes,
    iter_episodes,
    read_configuration,
)
from envbuild.manifest.read import open_manifest, select_rows
from envbuild.records.corpus import DatabaseRecord, Question, Reject, counted
from envbuild.records.episode import EndedBy, Episode
from envbuild.records.evaluation import Evaluation, LiteralUse, QuestionVerdict, Rung

WITHOUT_DISTINCT = "; EX takes DISTINCT out of both queries first, as Spider's evaluator does"

BY_QUESTION = "; intervals take the question as the unit, not its episodes or phrasings"


class EvaluationRun(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation with all that its page and files are made of."""

    evaluation: Evaluation
    verdicts: list[QuestionVerdict]
    literals: list[LiteralUse] = []
    episodes: Iterable[Episode] = ()
    """The folder's, read once more as they are asked for."""
    warnings: list[str] = []


def evaluate_episodes(
    folder: Path,
    *,
    manifest: Path | None = None,
    where: str = "",
    rows: int | None = None,
    seed: int = 0,
    rerun_golds: bool = False,
) -> EvaluationRun:
    """EX, behaviour, exploration and literals of the episodes in `folder`.

    `where` keeps the episodes of the rows that it selects, see `select_rows`; of these, `rows`
    keeps that many questions, drawn by `seed`; None keeps all. `rerun_golds`: see `GoldStore`.
    Raises CorpusFolderError where the folder or its manifest is missing, or its golds are another
    SQLite's; CorpusError where a database has changed. One episode is in memory at a time.
    """
    opened = open_manifest(manifest or manifest_of(folder))
    played = {episode.row_id for episode in iter_episodes(folder)}
    if where:
        played &= set(select_rows(opened, where))
    chosen = draw_questions(played, rows=rows, seed=seed)
    kept = frozenset(chosen)
    episodes = (episode for episode in iter_episodes(folder) if episode.row_id in kept)
    judged = list(judge_episodes(opened, episodes, rerun_golds=rerun_golds))
    verdicts = [one.verdict for one in judged]
    several = len(verdicts) > len({verdict.key for verdict in verdicts})
    said = [
        f"{counted(len(judged), 'episode')} of {counted(len(chosen), 'row')}",
        f", drawn from {len(played)}" if len(chosen) < len(played) else "",
        f" where {where}" if where else "",
        BY_QUESTION if several else "",
    ]
    return EvaluationRun(
        evaluation=evaluate_answers(
            verdicts, name=folder.resolve().name, said="".join(said), judged=judged
        ),
        verdicts=verdicts,
        literals=[use for one in judged for use in one.literals],
        episodes=iter_episodes(folder),
        warnings=_unfinished(folder, Counter(verdict.ended_by for verdict in verdicts)),
    )


def evaluate_predictions(
    source: Path,
    predictions: Path,
    *,
    benchmark: str | None,
    rows: int | None = None,
    seed: int = 0,
) -> EvaluationRun:
    """EX of a predictions file over a benchmark's folder, under the benchmark's own rule.

    `benchmark` None is the folder's own: Spider's of a Spider folder, BIRD's of any other.
    Raises UnknownNameError for another benchmark, SourceError where the file does not belong, where
    none of its predictions is for one of the questions, and where no question has its database.
    """
    read = read_source(source)
    rule = load_benchmark(benchmark or (read.kind if read.kind in BENCHMARKS else "bird"))
    offered = list(read.questions())
    questions = [q for q in offered if isinstance(q, Question)]
    refused = Counter(q.reason for q in offered if isinstance(q, Reject))
    if not questions:
        raise SourceError(f"{source} holds no questions: {read.description}")
    found = read_predictions(predictions, questions_in_place(offered))
    if found.unknown and not found.sql:
        own = quote_some([q.question_id for q in questions])
        raise SourceError(
            f"no prediction of {predictions} is for a question of {source}: the file has "
            f"{quote_some(found.unknown)}, the questions have {own}"
        )
    files = {
        d.db_id: Path(d.sqlite_file)
        for d in read.databases()
        if isinstance(d, DatabaseRecord) and d.sqlite_file
    }
    here = [q for q in questions if q.db_id in files]
    if not here:
        raise SourceError(
            f"{source} holds no database of its {len(questions)} questions ({read.description}): "
            "name the benchmark's own folder, with its databases inside"
        )
    asked = {q.question_id for q in here}
    chosen = set(draw_questions(asked, rows=rows, seed=seed))
    verdicts = list(
        judge_predictions(
            [q for q in here if q.question_id in chosen],
            found.sql,
            benchmark=rule,
            database_path=files.__getitem__,
            policy=predictions.stem,
        )
    )
    said = [
        f"{read.description}; {found.said}",
        f"; judged as {rule.name}, for want of --benchmark" if benchmark is None else "",
        f"; {len(chosen)} of {len(asked)} questions drawn" if len(chosen) < len(asked) else "",
        WITHOUT_DISTINCT if rule.drop_distinct else "",
    ]
    return EvaluationRun(
        evaluation=evaluate_answers(
            verdicts, name=predictions.stem, said="".join(said), compare_rules=True
        ),
        verdicts=verdicts,
        warnings=_left_out(questions, here, refused, found),
    )


def withhold_text(run: EvaluationRun) -> EvaluationRun:
    """The same without any text of questions, SQL or cells: what may be published."""
    return msgspec.structs.replace(
        run,
        evaluation=msgspec.structs.replace(
            run.evaluation, said=f"{run.evaluation.said}; question, SQL and cell text left out"
        ),
        verdicts=[
            msgspec.structs.replace(v, question="", gold_sql="", predicted_sql="", reason="")
            for v in run.verdicts
        ],
        literals=[msgspec.structs.replace(use, literal="") for use in run.literals],
        episodes=(),
    )


def evaluate_ladder(rungs: Sequence[tuple[str, Path]], *, rerun_golds: bool = False) -> list[Rung]:
    """One rung a (name, episodes folder), over the questions that every folder holds.

    Raises UsageError where the folders share no question, and as `evaluate_episodes` does.
    """
    judged = []
    for name, folder in rungs:
        manifest, episodes = open_manifest(manifest_of(folder)), iter_episodes(folder)
        judged.append((name, list(judge_episodes(manifest, episodes, rerun_golds=rerun_golds))))
    shared = set.intersection(*({one.verdict.key for one in found} for _, found in judged))
    if not shared:
        raise UsageError("these episodes folders share no question: roll out the same rows on each")
    return [
        build_rung(name, [one for one in found if one.verdict.key in shared])
        for name, found in judged
    ]


def draw_questions(ids: Iterable[str], *, rows: int | None, seed: int) -> tuple[str, ...]:
    """The distinct ids, or `rows` of them drawn by `seed`, whatever their order."""
    return shuffled(set(ids), seed=seed)[:rows]


def manifest_of(folder: Path) -> Path:
    """The manifest that an episodes folder is rolled out from, finished or not.

    Raises CorpusFolderError where there are no episodes, or where they do not say.
    """
    check_episodes(folder)
    configuration = read_configuration(folder)
    if configuration is None:
        raise CorpusFolderError(
            f"{folder} has neither {INDEX} nor {BEGUN}: name the manifest with --manifest"
        )
    named = configuration.get("manifest")
    if not isinstance(named, str) or not named:
        raise CorpusFolderError(f"the rollout of {folder} names no manifest: use --manifest")
    path = Path(named)
    return path if path.is_absolute() else folder / path


def _unfinished(folder: Path, ended_by: Counter[str]) -> list[str]:
    """What makes these episodes less than a whole rollout, in sentences."""
    said = []
    if (folder / JOURNAL).exists():
        said.append(f"{folder} is an unfinished rollout: these are the episodes finished so far")
    if failed := ended_by[EndedBy.POLICY_ERROR]:
        said.append(
            f"{counted(failed, 'episode')} ended because the policy could not go on "
            "(policy_error): wrong answers"
        )
    if unanswered := ended_by[EndedBy.SERVER_ERROR]:
        said.append(
            f"the server failed {counted(unanswered, 'episode')} (server_error): unscored, and the "
            "same rollout command asks again"
        )
    return said


def _left_out(
    questions: Sequence[Question],
    here: Sequence[Question],
    refused: Counter[str],
    found: Predictions,
) -> list[str]:
    """What did not take part, in sentences: nothing is dropped in silence."""
    said = []
    if refused:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(refused.items()))
        said.append(f"{refused.total()} records of the source are no questions: {reasons}")
    if len(here) < len(questions):
        without = {q.db_id for q in questions} - {q.db_id for q in here}
        lacking = sorted(db_id or "(no db_id)" for db_id in without)
        said.append(
            f"{counted(len(questions) - len(here), 'question')} left out: no database file for "
            f"{', '.join(lacking[:5])}{' …' if len(lacking) > 5 else ''}"
        )
    if found.unknown:
        count, first = len(found.unknown), found.unknown[0]
        said.append(f"{count} predictions match no question, such as {first!r}")
    if missing := sum(q.question_id not in found.sql for q in here):
        said.append(f"{missing} questions have no prediction and count as wrong")
    return said

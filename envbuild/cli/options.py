"""The options, one spelling each: those that commands share, and those of a stage's record."""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
from typer import Argument, Exit, Option
from typer.models import ArgumentInfo

from envbuild.cli.output import Result, finish, warn
from envbuild.errors import UsageError
from envbuild.pipeline.config import WHERE


def _check_engine(name: str) -> str:
    """What is no engine, or not installed, is said before anything runs."""
    if name != "local":
        from envbuild.engine.fanout import load_engine

        load_engine(name)
    return name


def _check_file(path: Path | None) -> Path | None:
    from envbuild.io.files import check_file

    if path is not None:
        check_file(Path(path))
    return path


def _check_folder(path: Path | None) -> Path | None:
    from envbuild.io.files import check_folder

    if path is not None:
        check_folder(Path(path))
    return path


def file_option(help: str) -> Any:
    """An option that names a file to write: what cannot be one is said at once."""
    return Option(callback=_check_file, metavar="FILE", help=help)


def folder_option(help: str) -> Any:
    """An option that names a folder to write into, checked as `file_option` is."""
    return Option(callback=_check_folder, help=help)


def default_corpus() -> Path:
    """`$ENVBUILD_CORPUS`, else ./corpus, else that of a demo; which one is said."""
    if named := os.environ.get("ENVBUILD_CORPUS"):
        return Path(named)
    demo = Path("envbuild-demo", "corpus")
    if Path("corpus").exists() or not demo.is_dir():
        return Path("corpus")
    warn(f"there is no ./corpus: {demo} is taken, the demo's")
    return demo


CorpusArgument = Annotated[
    Path,
    Argument(
        default_factory=default_corpus,
        show_default="$ENVBUILD_CORPUS, else ./corpus, else ./envbuild-demo/corpus",
        help="A corpus folder, or the folder above several.",
    ),
]
ManifestArgument = Annotated[Path, Argument(help="A manifest folder.")]
EpisodesArgument = Annotated[Path, Argument(help="An episodes folder.")]
ManifestOption = Annotated[
    Path | None, Option(help="Default: the one the episodes were made with.")
]
JsonOption = Annotated[bool, Option("--json", help="One JSON document on stdout.")]
QuietOption = Annotated[bool, Option("--quiet", help="No progress bars.")]
SeedOption = Annotated[int, Option(help="Run seed; same seed, same bytes.")]
DatabaseLimitOption = Annotated[
    int | None, Option(min=0, help="Only the first N databases of each corpus.")
]
QuestionLimitOption = Annotated[
    int | None, Option(min=0, help="Only the first N questions of each corpus.")
]
EpisodeLimitOption = Annotated[int | None, Option(min=0, help="Only the first N episodes.")]
WorkersOption = Annotated[int | None, Option(min=1, help="Processes; default: one a core.")]
EngineOption = Annotated[
    str, Option(metavar="local|ray|slurm", callback=_check_engine, help="What runs the work.")
]
ShardOption = Annotated[str | None, Option(metavar="I/N", help="Only shard I of N (Slurm arrays).")]
RerunGoldsOption = Annotated[
    bool,
    Option(
        "--rerun-golds", help="Judge by golds run here, each once, not by those in the manifest."
    ),
]
HtmlOption = Annotated[Path | None, file_option("One self-contained page.")]
NoTextOption = Annotated[
    bool,
    Option(
        "--no-text", help="Leave question, SQL and cell text out of page and files, to publish."
    ),
]
WhereOption = Annotated[str, Option(metavar="SQL", help=WHERE)]
ReplaceOption = Annotated[
    bool, Option("--replace", help="Remove a manifest there of other settings or inputs.")
]
BaseUrlOption = Annotated[str, Option(help="Such as http://127.0.0.1:8000/v1.")]
ModelOption = Annotated[str, Option(help="The served model's name.")]
DialectOption = Annotated[str, Option(metavar="vllm|openai", help="How the server is spoken to.")]
PresetOption = Annotated[
    str, Option(metavar="default|several-calls|one-call", help="Rules of the episode.")
]
PromptsOption = Annotated[Path | None, Option(metavar="FILE", help="Your own prompts (TOML).")]
SchemaOption = Annotated[
    str, Option(metavar="withheld|full", help="full: the DDL is in the prompt.")
]
GateStepOption = Annotated[
    int | None, Option("--step", min=0, help="Training step that sets the submit gate.")
]


def parse_shard_option(text: str | None) -> tuple[int, int] | None:
    """--shard as index and count; None where it was not given."""
    from envbuild.engine.fanout import parse_shard

    return parse_shard(text) if text else None


def names_of(text: str | None) -> tuple[str, ...]:
    """The parts of a comma-separated text; blanks are none."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def parse_fields(pairs: Iterable[str]) -> dict[str, str]:
    """`question=nl` as field and key. Raises UsageError for another form."""
    fields = {}
    for pair in pairs:
        field, given, key = (part.strip() for part in pair.partition("="))
        if not (field and given and key):
            raise UsageError(f"--fields takes FIELD=KEY, such as question=nl; got {pair!r}")
        fields[field] = key
    return fields


def as_command(function: Callable[..., Any]) -> Callable[..., None]:
    """The command as typer calls it: it shows the `Result` that comes back, and ends with its code.

    Whatever gives a `Result` takes --json, whether it looks at it or not. The fields of a
    `settings` record are options too: a field's `msgspec.Meta` gives the help and the bounds, so a
    pipeline file and the command line fill the same record. A tuple is written comma-separated.
    """
    signature = inspect.signature(function, eval_str=True)
    own = signature.parameters
    record = own["settings"].annotation if "settings" in own else None
    fields = msgspec.structs.fields(record) if record else ()
    parameters: list[inspect.Parameter] = []
    for parameter in own.values():
        shown = map(_parameter_of, fields) if parameter.name == "settings" else (parameter,)
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in shown]
    if signature.return_annotation is Result and "json" not in own:
        parameters.append(_parameter("json", JsonOption, default=False))

    @functools.wraps(function)
    def command(**given: Any) -> None:
        json = given["json"] if "json" in own else given.pop("json", False)
        if record:
            values = {field.name: given.pop(field.name) for field in fields}
            for field in fields:
                if isinstance(field.default, tuple):
                    text = values[field.name]
                    values[field.name] = field.default if text is None else tuple(text.split(","))
            given["settings"] = record(**values)
        if (result := function(**given)) is not None:
            raise Exit(finish(function.__name__, result, json=json))

    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _parameter_of(field: msgspec.structs.FieldInfo) -> inspect.Parameter:
    """A record's field as a parameter whose annotation is a typer option."""
    optional = get_origin(field.type) is not Annotated  # Annotated[X, …] | None
    kind, meta = get_args(get_args(field.type)[0] if optional else field.type)
    kind, default = kind | None if optional else kind, field.default
    if isinstance(default, tuple):
        kind, default = str | None, None
    option = Option(
        f"--{field.name.replace('_', '-')}",
        help=meta.description,
        min=meta.ge,
        max=meta.le,
        **(meta.extra or {}),
    )
    return _parameter(field.name, Annotated[kind, option], default=default)


def _parameter(name: str, annotation: Any, *, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def command_line(function: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """What a person types for this call of a command, for a person to read.

    Options at None, False or nothing are left out.
    """
    values = dict(given)
    if (settings := values.pop("settings", None)) is not None:
        values = {**msgspec.structs.asdict(settings), **values}
    words, options = [function.__name__], []
    for name, parameter in inspect.signature(as_command(function)).parameters.items():
        value = values.get(name)
        if value in (None, "", (), []) or value is False:
            continue
        info = get_args(parameter.annotation)[1]
        if isinstance(info, ArgumentInfo):
            words += [str(one) for one in (value if isinstance(value, list) else [value])]
            continue
        flag = info.default if isinstance(info.default, str) else f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            text = ",".join(map(str, one)) if isinstance(one, tuple) else str(one)
            options += [flag] if value is True else [flag, text]
    return words + options

"""Why a question is left out before its gold SQL is looked at; each reason has a name."""

from typing import Any

from envbuild.corpora.wording import is_placeholder
from envbuild.manifest.settings import ManifestSettings


def refusal_before_gold(
    fields: dict[str, Any], settings: ManifestSettings
) -> tuple[str, str] | None:
    """(reason, detail) for a question that cannot or shall not be a row; None for all others."""
    if not fields["db_id"]:
        return ("missing_db_id", "the question names no database")
    if fields["repeated"]:
        return ("duplicate_question", "its question id and style were there before")
    if settings.styles and fields["style"] not in settings.styles:
        return ("style_not_taken", f"--styles takes {', '.join(settings.styles)}")
    if is_placeholder(fields["question"]):
        return ("placeholder_phrasing", fields["question"][:80] or "(empty)")
    if not fields["gold_sql"].strip():
        return ("no_gold_sql", "")
    found = [code for code in settings.leave_out if code in (fields["findings"] or ())]
    return (found[0], "left out for this finding") if found else None

"""Tables show cells as they are, whatever they hold."""

import pytest

from envbuild.cli.tables import print_table


def test_cells_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("a", "[b]"), [("[/y]", "[bold]x"), (1, None)], title="[red]t")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/y]", "[bold]x", "[b]", "[red]t"))

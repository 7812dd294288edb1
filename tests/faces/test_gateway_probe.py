"""``probe``: what the answers of identical calls prove, and that it claims no more."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from effectfence_pg.gateway import probe
from effectfence_pg.gateway.transports import command_transport
from tests.support import warm
from tests.support.faces import command, run
from tests.support.witness import Witness

CALLS = 6


@pytest.fixture
def books(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "books")


def server(books: Witness) -> list[str]:
    return warm.python("tests.support.lying", str(books.path))


def result(**said: Any) -> str:
    return f'{{"jsonrpc":"2.0","id":ID,"result":{json.dumps({"content": [], **said})}}}'


def text(said: str, **more: Any) -> str:
    return result(content=[{"type": "text", "text": said}], **more)


def fields(**said: Any) -> str:
    return result(structuredContent=said)


def found(books: Witness, answers: list[str], identifier: str | None = None) -> probe.Found:
    seen = run(probe.probe(command_transport(server(books)), "charge", {"answers": answers}, CALLS, identifier))
    assert books.count() == CALLS
    return seen


EXECUTED = {
    "a field": ([fields(charge_id="ch_NUMBER", cents=4900)], CALLS, "charge_id"),
    "a field of another name": (
        [fields(charge={"transactionId": "tNUMBER"}, at="12:00:0NUMBER")],
        CALLS,
        "transactionId",
    ),
    "a field in text": ([text(json.dumps({"id": "NUMBER"}))], CALLS, "id"),
    "words": ([text("Charged order 1, charge id: ch_NUMBER.")], CALLS, "charge id"),
    "replays of two": ([fields(id="a")] * 3 + [fields(id="b")] * 3, 2, "id"),
    "an id of two kinds": ([fields(id=1.5), fields(id="a"), fields(id="b")], 2, "id"),
    "errors beside": ([fields(id="a"), fields(id="b"), text("no: NUMBER", isError=True)], 2, "id"),
}


@pytest.mark.parametrize(("answers", "times", "identifier"), EXECUTED.values(), ids=EXECUTED)
def test_a_second_id_for_the_same_call_proves_a_second_execution(
    books: Witness, answers: list[str], times: int, identifier: str
) -> None:
    seen = found(books, answers)
    assert (seen.verdict, seen.executions, seen.identifier) == ("double_fire", times, identifier)


ONE = {"status": "created", "id": "ch_1"}
UNPROVEN = {
    "created and already there": [text("created"), text("already exists")],
    "created, under way, already there": [text("created"), text("in progress"), text("already exists")],
    "each refusal with an id of its own": [fields(**ONE), fields(status="exists", id="refusal_NUMBER")],
    "a mark beside the one result": [fields(**ONE, replayed=False), fields(**ONE, replayed=True)],
    "the time of the answer": [fields(**ONE, served_at="2026-12-01T12:00:0NUMBER")],
    "ids of the requests": [fields(**ONE, requestId="rNUMBER", trace={"id": "tNUMBER"})],
    "ids of the requests in words": [text("Request rNUMBER, id rNUMBER: order 1 is charged.")],
    "how often it was asked": [text("order 1 is charged, asked for: NUMBER")],
    "a word that only ends like one": [text("paid NUMBER")],
    "numbers in words": [text("Created issue #NUMBER")],
}


@pytest.mark.parametrize("answers", UNPROVEN.values(), ids=UNPROVEN)
def test_answers_that_differ_without_a_second_id_prove_nothing(books: Witness, answers: list[str]) -> None:
    seen = found(books, answers)
    assert (seen.verdict, seen.executions) == ("answers_differ", 0)
    assert seen.distinct > 1
    assert len(set(seen.examples)) == 2


def test_what_somebody_knows_to_be_new_with_every_execution_is_proof(books: Witness) -> None:
    seen = found(books, [text("Created issue #NUMBER")], identifier="issue")
    assert (seen.verdict, seen.executions) == ("double_fire", CALLS)


def test_equal_answers_and_errors_prove_nothing(books: Witness) -> None:
    seen = found(books, [fields(id="ch_1")])
    assert (seen.verdict, seen.answered, seen.distinct, seen.examples) == ("inconclusive", CALLS, 1, ())


def test_refusals_are_no_executions_however_they_are_worded(books: Witness) -> None:
    seen = found(books, [fields(id="ch_1"), result(isError=True, structuredContent={"id": "refusal_NUMBER"})])
    assert (seen.verdict, seen.answered, seen.errors, seen.distinct) == ("inconclusive", 1, CALLS - 1, 1)


SAID = {
    "proof": ([fields(id="NUMBER")], (), 1, "proven double fire: charge ran at least 4 times (4 of 4 calls answered, "),
    "named": ([text("issue #NUMBER")], ("--id", "issue"), 1, "proven double fire: charge ran at least 4 times ("),
    "different": (
        [text("created"), text("exists")],
        (),
        0,
        "inconclusive: 4 of 4 calls answered, 2 different answers; ",
    ),
    "equal": ([text("done")], (), 0, "inconclusive: 4 of 4 calls answered, 1 different answers; equal answers do not"),
    "errors": (
        [text("no", isError=True)],
        (),
        3,
        "inconclusive: 0 of 4 calls answered, 0 different answers; errors do",
    ),
    "no name": ([], ("--id", " "), 2, ""),
}


@pytest.mark.parametrize(("answers", "options", "status", "start"), SAID.values(), ids=SAID)
def test_only_proof_is_an_exit_status_of_one_and_no_answer_one_of_three(
    books: Witness, answers: list[str], options: tuple[str, ...], status: int, start: str
) -> None:
    arguments = ("--tool", "charge", "--calls", "4", "--args", json.dumps({"answers": answers}), *options)
    ended, out, _ = command("probe", *arguments, "--", *server(books))
    assert ended == status
    assert out.startswith(start)


def test_two_of_the_different_answers_are_shown_with_what_to_do_about_them(books: Witness) -> None:
    arguments = ("--tool", "charge", "--args", json.dumps({"answers": [text("created"), text("exists")]}))
    _, out, _ = command("probe", *arguments, "--", *server(books))
    told, one, other = out.splitlines()
    assert "--id" in told
    assert {"created" in one, "created" in other} == {"exists" in one, "exists" in other} == {True, False}


def test_a_server_that_cannot_be_reached_is_no_proof_and_no_answer() -> None:
    for unreached in (("--url", "http://127.0.0.1:9/mcp"), ("--", "false")):
        status, out, err = command("probe", "--json", "--tool", "charge", *unreached)
        assert (status, json.loads(out)["error"]["code"]) == (3, "upstream_unavailable")
        assert "EFFECTFENCE_UPSTREAM_AUTHORIZATION" not in err


@pytest.mark.parametrize("http_status", [401, 403])
def test_a_server_that_denies_access_is_said_to_want_an_authorization(http_status: int) -> None:
    with denying(http_status) as url:
        status, _, err = command("probe", "--tool", "charge", "--url", url)
    assert status == 3
    assert f"HTTP status {http_status}" in err
    assert "EFFECTFENCE_UPSTREAM_AUTHORIZATION" in err


@contextlib.contextmanager
def denying(status: int) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}/mcp"
        finally:
            served.shutdown()
            thread.join()


@pytest.mark.parametrize("face", ["gateway", "probe"])
def test_the_variable_for_an_authorization_is_in_the_help(face: str) -> None:
    assert "EFFECTFENCE_UPSTREAM_AUTHORIZATION" in command(face, "--help", COLUMNS="200")[1]

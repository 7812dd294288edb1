"""F20: what an error proves. Every class of error is told apart on the record, and none releases an intent by itself."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from effectfence_pg.running.proof import NEVER_SENT, Kind, classify, judge, never_sent
from effectfence_pg.values import AbortEffect


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """A server on the loopback interface that does this with every connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)

        def serve() -> None:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(10)
                answer(client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()


def http(status: str, body: bytes = b"{}") -> Callable[[socket.socket], object]:
    def answer(client: socket.socket) -> None:
        client.recv(65536)
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode() + body)

    return answer


def reset(client: socket.socket) -> None:
    """Close with a reset, after the request was read."""
    client.recv(65536)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def silent(client: socket.socket) -> None:
    """Read the request, in however many pieces, and answer nothing, until the client has gone."""
    while client.recv(65536):
        pass


def cut_off(client: socket.socket) -> None:
    client.recv(65536)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def error_of(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as raised:
        call()
    return raised.value


def post(url: str, timeout: float = 5.0) -> Any:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.post(url, json={"cents": 4900}, timeout=timeout)
        answer.raise_for_status()
        return answer.json()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


SERVED = {
    "400": (http("400 Bad Request"), Kind.HTTP_4XX),
    "404": (http("404 Not Found"), Kind.HTTP_4XX),
    "409": (http("409 Conflict"), Kind.HTTP_4XX),
    "429": (http("429 Too Many Requests"), Kind.HTTP_429),
    "500": (http("500 Internal Server Error"), Kind.HTTP_5XX),
    "503": (http("503 Service Unavailable"), Kind.HTTP_5XX),
    "malformed body": (http("200 OK", b"<html>"), Kind.MALFORMED),
    "reset after send": (reset, Kind.RESET),
    "half an answer": (cut_off, Kind.RESET),
}


@pytest.mark.parametrize("case", SERVED)
def test_f20_what_came_after_the_request_was_sent_proves_nothing(case: str) -> None:
    answer, kind = SERVED[case]
    with answering(answer) as port:
        error = error_of(lambda: post(f"http://127.0.0.1:{port}/charge"))
    assert classify(error) == kind
    assert not never_sent(error)
    assert judge(error, ()).effect == AbortEffect.UNKNOWN


def test_f20_a_read_timeout_proves_nothing() -> None:
    with answering(silent) as port:
        error = error_of(lambda: post(f"http://127.0.0.1:{port}/charge", timeout=0.1))
    assert classify(error) == Kind.READ_TIMEOUT
    assert not never_sent(error)


BEFORE = {
    "refused": (lambda: post(f"http://127.0.0.1:{free_port()}/charge"), {Kind.REFUSED, Kind.NOT_CONNECTED}),
    "no such name": (lambda: post("http://nobody.invalid/charge"), {Kind.NAME}),
    "no scheme": (lambda: post("127.0.0.1/charge"), {Kind.BAD_REQUEST}),
    "refused, without a library": (lambda: socket.create_connection(("127.0.0.1", free_port())), {Kind.REFUSED}),
}


@pytest.mark.parametrize("case", BEFORE)
def test_f20_what_came_before_the_first_byte_is_told_apart_and_releases_only_when_declared(case: str) -> None:
    call, kinds = BEFORE[case]
    error = error_of(call)
    assert classify(error) in kinds
    assert never_sent(error)
    # The tool may have sent another request before this one.
    assert judge(error, ()).effect == AbortEffect.UNKNOWN
    assert judge(error, never_sent).effect == AbortEffect.NONE


def test_f20_a_tls_handshake_that_fails_comes_before_the_request() -> None:
    with answering(lambda client: client.recv(65536)) as port:
        error = error_of(lambda: post(f"https://127.0.0.1:{port}/charge"))
    assert classify(error) in {Kind.TLS, Kind.RESET}
    assert classify(ssl.SSLCertVerificationError("expired")) == Kind.TLS


def like(name: str, *bases: type[BaseException], **facts: Any) -> BaseException:
    """An error of a class with this name, as a library that is not installed here would raise it."""
    module, _, cls = name.rpartition(".")
    error = type(cls, bases or (Exception,), {"__module__": module, **facts})()
    assert isinstance(error, BaseException)
    return error


class Answer:
    def __init__(self, status: int) -> None:
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (like("httpx.ConnectTimeout"), Kind.CONNECT_TIMEOUT),
        (like("httpx.PoolTimeout"), Kind.POOL_TIMEOUT),
        (like("httpx.ConnectError"), Kind.NOT_CONNECTED),
        (like("httpx.ReadTimeout"), Kind.READ_TIMEOUT),
        (like("httpx.WriteTimeout"), Kind.WRITE_TIMEOUT),
        (like("httpx.ReadError"), Kind.RESET),
        (like("httpx.RemoteProtocolError"), Kind.RESET),
        (like("httpx.DecodingError"), Kind.MALFORMED),
        (like("httpx._exceptions.ReadTimeout"), Kind.READ_TIMEOUT),
        (like("httpx.HTTPStatusError", response=Answer(429)), Kind.HTTP_429),
        (like("httpx.HTTPStatusError", response=Answer(503)), Kind.HTTP_5XX),
        (like("openai.APIStatusError", response=Answer(409)), Kind.HTTP_4XX),
        (ConnectionResetError(), Kind.RESET),
        (BrokenPipeError(), Kind.RESET),
        (TimeoutError(), Kind.TIMEOUT),
        (json.JSONDecodeError("m", "d", 0), Kind.MALFORMED),
        (ValueError(), Kind.OTHER),
        (KeyboardInterrupt(), Kind.OTHER),
    ],
)
def test_f20_classes_are_known_by_their_names(error: BaseException, kind: Kind) -> None:
    assert classify(error) == kind


def after(error: BaseException, earlier: BaseException, *, cause: bool = False) -> BaseException:
    """The error as it is when it was raised while, or because, an earlier one was handled."""
    error.__context__ = earlier
    if cause:
        error.__cause__ = earlier
    return error


def test_f20_the_cause_underneath_tells_more_than_the_error_around_it() -> None:
    assert classify(after(like("httpx.ConnectError"), ConnectionRefusedError(), cause=True)) == Kind.REFUSED
    assert classify(after(RuntimeError(), ConnectionRefusedError(), cause=True)) == Kind.REFUSED


def test_f20_a_try_that_was_refused_proves_nothing_about_the_one_before_it() -> None:
    for earlier in (like("httpx.ReadTimeout"), ConnectionResetError(), TimeoutError()):
        assert not never_sent(after(ConnectionRefusedError(), earlier))
        assert not never_sent(after(like("httpx.ConnectTimeout"), after(KeyError(), earlier)))
    assert not never_sent(after(like("httpx.ReadTimeout"), ConnectionRefusedError()))


def test_f20_the_timeout_inside_of_a_connect_timeout_is_that_timeout() -> None:
    assert never_sent(after(like("httpx.ConnectTimeout"), TimeoutError(), cause=True))
    assert not never_sent(TimeoutError())
    assert not never_sent(ValueError())


def test_f20_the_record_has_classes_and_no_messages() -> None:
    proof = judge(TimeoutError("token=secret"), ())
    assert proof.reason == "TimeoutError [timeout]: outcome unknown"
    status = judge(like("httpx.HTTPStatusError", response=Answer(503)), ())
    assert status.reason == "httpx.HTTPStatusError [http_5xx 503]: outcome unknown"


@pytest.mark.parametrize("declared", [TimeoutError, (OSError, KeyError), lambda e: isinstance(e, OSError)])
def test_f20_a_declaration_decides(declared: Any) -> None:
    assert judge(TimeoutError(), declared).effect == AbortEffect.NONE
    assert judge(ValueError(), declared).effect == AbortEffect.UNKNOWN


@pytest.mark.parametrize("answer", ["yes", 1, None])
def test_f20_a_predicate_that_does_not_answer_with_true_declares_nothing(answer: Any) -> None:
    assert judge(ValueError(), lambda _: answer).effect == AbortEffect.UNKNOWN


def test_f20_no_kind_that_may_come_after_the_first_byte_is_taken_for_one_that_cannot() -> None:
    assert not NEVER_SENT & {
        Kind.READ_TIMEOUT,
        Kind.WRITE_TIMEOUT,
        Kind.RESET,
        Kind.MALFORMED,
        Kind.HTTP_429,
        Kind.HTTP_4XX,
        Kind.HTTP_5XX,
        Kind.TIMEOUT,
        Kind.CANCELLED,
        Kind.OTHER,
    }

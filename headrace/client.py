"""Headrace over HTTP, for the command line and the demo.

Promises one exception for every answer that is no success (`Problem`) and one for a server that cannot be
reached (`Unreachable`). Retries only what cannot do harm: reads, and a submit, which always carries an
`Idempotency-Key`. Does not check what it sends: the server is the only judge of a request.
"""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
import backoff
import orjson

JsonObject = dict[str, Any]

REQUEST_TIMEOUT_S = 30.0
RETRY_LIMIT_S = 10.0
TRIES = 4
MOST_IDS = 1_000  # of one request
SAMPLE = 10
TERMINAL = frozenset({"completed", "failed", "cancelled", "expired"})
WAITING = frozenset({"scheduled", "queued"})


class Unreachable(Exception):
    """Nobody answered at this address, or the answer broke off."""


class Problem(Exception):
    """An answer that is no success, with its RFC 9457 document."""

    def __init__(self, status: int, document: JsonObject, retry_after_s: float | None = None) -> None:
        super().__init__(str(document.get("detail") or document.get("title") or f"HTTP {status}"))
        self.status = status
        self.document = document
        self.retry_after_s = retry_after_s

    @property
    def code(self) -> str:
        return str(self.document.get("code", f"http_{self.status}"))


class _TryAgain(Exception):
    """The server is away for a moment; carries what to raise when it stays away."""

    def __init__(self, cause: Unreachable | Problem) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer; `body` is the parsed JSON, empty for 204 and 304."""

    status: int
    headers: Mapping[str, str]
    body: JsonObject = field(default_factory=dict)


class Client:
    """A connection to one server with one key; use it as an async context manager."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    async def get(
        self, path: str, params: Sequence[tuple[str, str]] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Read; tried again while the server is away, for a few seconds."""
        return await self._patiently("GET", path, params=params, headers=headers)

    async def try_get(self, path: str) -> Answer:
        """Read, once: for those who wait in a loop of their own."""
        return await self._once("GET", path)

    async def submit(self, job: JsonObject, idempotency_key: str | None = None) -> Answer:
        """Submit a job; a lost answer never makes a second job."""
        key = idempotency_key or secrets.token_urlsafe(18)
        return await self._patiently("POST", "/v1/jobs", json=job, headers={"Idempotency-Key": f'"{key}"'})

    async def submit_batch(self, requests: Sequence[list[object]], idempotency_key: str | None) -> list[JsonObject]:
        """Submit many jobs in several requests; returns what became of each, by its place in all of them."""
        key = idempotency_key or secrets.token_urlsafe(18)
        items: list[JsonObject] = []
        for number, jobs in enumerate(requests):
            headers = {"Idempotency-Key": f'"{key}.{number}"'}
            answer = await self._patiently("POST", "/v1/jobs/batch", json={"jobs": jobs}, headers=headers)
            first = len(items)
            items += [item | {"index": first + int(item["index"])} for item in answer.body["data"]]
        return items

    async def cancel_jobs(self, question: JsonObject) -> JsonObject:
        """Cancel many jobs, or count them; page by page to the end. Returns the operation with all its counts."""
        ids = question.get("ids")
        if ids is not None and len(ids) > MOST_IDS:
            halves = [await self.cancel_jobs(question | {"ids": part}) for part in (ids[:MOST_IDS], ids[MOST_IDS:])]
            return together(*halves)
        operation = (await self._patiently("POST", "/v1/jobs/cancel", json=question)).body
        while operation["hasMore"]:
            more = question | {"cursor": operation["nextCursor"]}
            operation = together(operation, (await self._patiently("POST", "/v1/jobs/cancel", json=more)).body)
        return operation

    async def post(self, path: str, json: JsonObject | None = None) -> Answer:
        """Write, once."""
        return await self._once("POST", path, json=json)

    async def request_once(self, path: str, json: JsonObject) -> Answer:
        """Ask for something that an Idempotency-Key makes happen once, however often the answer is lost."""
        headers = {"Idempotency-Key": f'"{secrets.token_urlsafe(18)}"'}
        return await self._patiently("POST", path, json=json, headers=headers)

    async def patch(
        self,
        path: str,
        json: JsonObject,
        params: Sequence[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Change, once."""
        return await self._once("PATCH", path, json=json, params=params, headers=headers)

    async def delete(self, path: str, params: Sequence[tuple[str, str]] | None = None) -> Answer:
        """Remove, once."""
        return await self._once("DELETE", path, params=params)

    async def pages(
        self, path: str, params: Sequence[tuple[str, str]], limit: int, page_items: int = 100
    ) -> JsonObject:  # fmt: skip
        """Read a list of up to `limit` items; several requests when the server's pages are smaller."""
        items: list[JsonObject] = []
        page: JsonObject = {"hasMore": True, "nextCursor": None}
        while page["hasMore"] and len(items) < limit:
            cursor = [("cursor", str(page["nextCursor"]))] if page["nextCursor"] else []
            wanted = [*params, *cursor, ("limit", str(min(page_items, limit - len(items))))]
            page = (await self.get(path, wanted)).body
            items += page["data"]
        return page | {"data": items}

    async def lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[str]:
        """Yield the lines of an answer as they come; none for 204. Raises Unreachable when it breaks off."""
        assert self._session is not None, "use the client as a context manager"
        patience = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S, sock_read=2 * REQUEST_TIMEOUT_S)
        try:
            async with self._session.get(self.url + path, headers=headers, timeout=patience) as response:
                if response.status >= 400:
                    raise await _problem(response)
                async for line in response.content:
                    yield line.decode("utf-8", errors="replace").rstrip("\r\n")
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:  # ValueError: a line without end
            raise Unreachable(f"{self.url}: {fault or type(fault).__name__}") from fault

    async def download(self, path_or_url: str) -> bytes:
        """The bytes of an artifact, by its path or by a URL of this server."""
        path = path_or_url.removeprefix(self.url)
        if "://" in path:
            raise Unreachable(f"{path}: lies on another server, which must not see our key")
        assert self._session is not None, "use the client as a context manager"
        try:
            async with self._session.get(self.url + path) as response:
                if response.status != 200:
                    raise await _problem(response)
                return await response.read()
        except (aiohttp.ClientError, TimeoutError) as fault:
            raise Unreachable(f"{self.url}: {fault or type(fault).__name__}") from fault

    async def _patiently(self, method: str, path: str, **request: Any) -> Answer:
        @backoff.on_exception(
            backoff.expo, _TryAgain, max_tries=TRIES, max_time=RETRY_LIMIT_S, factor=0.2, max_value=2, logger=None
        )
        async def attempt() -> Answer:
            try:
                return await self._once(method, path, **request)
            except Unreachable as fault:
                raise _TryAgain(fault) from fault
            except Problem as fault:
                if fault.status != 503:
                    raise
                raise _TryAgain(fault) from fault

        try:
            return await attempt()
        except _TryAgain as last:
            raise last.cause from None

    async def _once(self, method: str, path: str, **request: Any) -> Answer:
        assert self._session is not None, "use the client as a context manager"
        try:
            async with self._session.request(method, self.url + path, **request) as response:
                if response.status >= 400:
                    raise await _problem(response)
                text = await response.read()
                return Answer(response.status, response.headers, orjson.loads(text) if text else {})
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as fault:
            raise Unreachable(f"{self.url}: {fault or type(fault).__name__}") from fault


def together(first: JsonObject, then: JsonObject) -> JsonObject:
    """Add up the counts of two calls of one operation."""
    counts = {name: first[name] + count for name, count in then.items() if type(count) is int}
    lists = {"sample": (first["sample"] + then["sample"])[:SAMPLE], "failures": first["failures"] + then["failures"]}
    return then | counts | lists


async def _problem(response: aiohttp.ClientResponse) -> Problem:
    text = await response.read()
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = {"title": text[:200].decode("utf-8", errors="replace")}
    retry_after = response.headers.get("Retry-After", "")
    return Problem(
        response.status,
        document if isinstance(document, dict) else {"title": str(document)},
        float(retry_after) if retry_after.isdigit() else None,
    )

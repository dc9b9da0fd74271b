"""`GET /v1/ws`: the streams over one WebSocket, any number of channels at once (subprotocol `jobs.v1.json`).

Promises: a channel is told what a stream of server-sent events is told, in the same order; a client that takes nothing
for WRITE_TIMEOUT_S, or answers no ping, is cut off, and one that is too slow for a channel (also by its own word, if it
acknowledges) is closed with 4409: it subscribes again behind its last position. A preview is a binary frame: two
big-endian numbers, JSON, the bytes.
"""

import asyncio
import struct
from contextlib import ExitStack, aclosing

import orjson
from aiohttp import WSMsgType, web

from contracts.errors import HeadraceError
from services.ingest.context import Context
from services.ingest.edge.middleware import REQUEST_ID, as_problem, stamp
from services.ingest.edge.problems import Problem, document
from services.ingest.handlers.cancel import Canceller
from services.ingest.handlers.read import JobReader
from services.ingest.live.access import StreamAccess, check_origin
from services.ingest.live.channels import Channels, Told, read_asked
from services.ingest.live.hub import Hub
from services.ingest.live.job_stream import HEARTBEAT_S
from services.ingest.live.messages import BEAT, Message, end
from services.ingest.live.query import Wanted
from services.ingest.live.sse import WRITE_TIMEOUT_S, bound_socket
from services.ingest.live.unacknowledged import Unacknowledged
from services.ingest.tenancy import Caller
from services.ingest.views.body_lines import JsonObject

PROTOCOL = "jobs.v1.json"
PING_S = 20.0
MOST_CHANNELS = 200
MAX_FRAME_BYTES = 64 << 10
GOING_AWAY, TRY_LATER = 1001, 1013
BAD_FRAME, UNAUTHENTICATED, FORBIDDEN, EXPIRED, SLOW, TOO_MANY = 4400, 4401, 4403, 4408, 4409, 4429
_PREVIEW_FRAME = 4


class SocketHandler:
    """The route."""

    def __init__(
        self, context: Context, reader: JobReader, hub: Hub, access: StreamAccess, canceller: Canceller
    ) -> None:  # fmt: skip
        self.context, self.reader, self.hub, self.access, self.canceller = context, reader, hub, access, canceller
        self.channels = Channels(context, reader, hub)

    async def serve(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Open the socket and serve it to its end."""
        check_origin(request, self.context.settings.public_url)
        with self.hub.stream(caller.key_id, "socket"):
            socket = web.WebSocketResponse(
                protocols=(PROTOCOL,), heartbeat=PING_S, max_msg_size=MAX_FRAME_BYTES, compress=False
            )
            stamp(socket, request[REQUEST_ID])
            await socket.prepare(request)
            bound_socket(request.transport)
            await Session(self, request, socket, caller).run()
            return socket


class Session:
    """One socket."""

    def __init__(
        self, shared: SocketHandler, request: web.Request, socket: web.WebSocketResponse, caller: Caller
    ) -> None:  # fmt: skip
        self._shared, self._request, self._socket, self._caller = shared, request, socket, caller
        self._channels: dict[str, asyncio.Task[None]] = {}
        self._unacknowledged: dict[str, Unacknowledged] = {}
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Answer frames until the socket closes."""
        watch = asyncio.create_task(self._watch())
        try:
            async for frame in self._socket:
                if frame.type is not WSMsgType.TEXT or (asked := _object(frame.data)) is None:
                    await self._close(BAD_FRAME, "one JSON object in a text frame")
                    return
                await self._answer(asked)
        except (TimeoutError, ConnectionError):
            self._cut_off()
        finally:
            tasks = [watch, *self._channels.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, asked: JsonObject) -> None:
        ref = asked.get("ref")
        try:
            match asked.get("op"):
                case "subscribe":
                    await self._subscribe(asked, _text(asked, "channel"))
                case "unsubscribe":
                    await self._unsubscribe(_text(asked, "channel"))
                    await self._send({"op": "reply", "ref": ref, "ok": True})
                case "cancel":
                    await self._cancel(_text(asked, "jobId"))
                    await self._send({"op": "reply", "ref": ref, "ok": True})
                case "auth":
                    self._renew(_text(asked, "token"))
                    await self._send({"op": "reply", "ref": ref, "ok": True})
                case "ack":
                    self._acknowledge(_text(asked, "channel"), _text(asked, "position"))
                    if ref is not None:
                        await self._send({"op": "reply", "ref": ref, "ok": True})
                case _:
                    raise Problem("invalid_input", "op is subscribe, unsubscribe, cancel, auth or ack")
        except (Problem, HeadraceError) as error:
            problem = as_problem(error, self._request[REQUEST_ID])
            told = document(problem, self._request.path, self._request[REQUEST_ID])
            await self._send({"op": "error", "ref": ref, "problem": told})
            if problem.code == "missing_scope" and asked.get("op") == "subscribe":
                await self._close(FORBIDDEN, "the key does not open this channel")

    async def _subscribe(self, asked: JsonObject, channel: str) -> None:
        if len(self._channels) >= MOST_CHANNELS:
            await self._close(TOO_MANY, f"{MOST_CHANNELS} channels at most")
            return
        await self._unsubscribe(channel)
        query = {name: str(asked[name]) for name in asked if name not in ("op", "ref", "channel")}
        wanted = read_asked(channel, query)
        with ExitStack() as stack:  # moves into the task once everything is in order
            told = await self._shared.channels.open(channel, self._caller, wanted, stack)
            self._shared.hub.figures.begun(_kind(channel), is_resumed=wanted.after is not None)
            self._unacknowledged[channel] = Unacknowledged()
            task = self._tell(asked.get("ref"), channel, wanted, told, stack.pop_all())
            self._channels[channel] = asyncio.create_task(task)

    async def _tell(self, ref: object, channel: str, wanted: Wanted, told: Told, stack: ExitStack) -> None:
        try:
            with stack:
                async with aclosing(told):
                    await self._pass_on(ref, channel, wanted, told)
        except (TimeoutError, ConnectionError):
            self._cut_off()
        except (HeadraceError, Problem):
            await self._close(TRY_LATER, "subscribe again behind the last position")
        self._channels.pop(channel, None)

    async def _pass_on(self, ref: object, channel: str, wanted: Wanted, told: Told) -> None:
        unacknowledged, figures = self._unacknowledged[channel], self._shared.hub.figures
        subscribed = {"op": "subscribed", "ref": ref, "channel": channel}
        is_new = wanted.after is None and not wanted.from_start
        if not is_new:
            await self._send(subscribed | {"position": wanted.after, "snapshot": None})
        async for message in told:
            if message is BEAT:
                continue
            unacknowledged.tell(message.id)
            if unacknowledged.is_slow:
                message = end("slow_consumer")
            if is_new and message.kind == "snapshot":
                await self._send(subscribed | {"position": message.id, "snapshot": orjson.loads(message.data)})
            elif message.content is not None:
                await self._send_bytes(preview_frame(message.data, message.content))
            else:
                await self._send_text(_frame(channel, message))
            figures.told(_kind(channel), message, self._shared.context.now_ms())
            is_new = False
            if message == end("slow_consumer"):
                await self._close(SLOW, "subscribe again behind the last position")
                return
            if message == end("going_away"):
                await self._close(GOING_AWAY, "subscribe again behind the last position")

    def _acknowledge(self, channel: str, position: str) -> None:
        if channel not in self._channels:
            raise Problem("invalid_input", "channel is one that is subscribed to")
        self._unacknowledged[channel].acknowledge(position)

    async def _unsubscribe(self, channel: str) -> None:
        task = self._channels.pop(channel, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _cancel(self, job_id: str) -> None:
        self._caller.require("jobs:write")
        done = await self._shared.canceller.apply(await self._shared.reader.need(self._caller, job_id), self._caller)
        if done.outcome == "ended":
            raise Problem("already_terminal", f"The job is {done.shown.state.status}")

    def _renew(self, token: str) -> None:
        renewed = self._shared.access.caller_of(token)
        is_same = _reach(renewed) == _reach(self._caller)
        if not is_same:
            raise Problem("unauthenticated", "The token allows something else than the one before; open another socket")
        self._caller = renewed

    async def _watch(self) -> None:
        """Close the socket when the caller may not see it any more, or the process ends with nothing subscribed."""
        while True:
            await asyncio.sleep(min(HEARTBEAT_S, 1.0))
            if not self._shared.access.is_still_valid(self._caller):
                is_token = self._caller.until_ms is not None
                await self._close(EXPIRED if is_token else UNAUTHENTICATED, "the key or token does not count any more")
                return
            if self._shared.hub.is_over:
                await self._close(GOING_AWAY, "connect again")
                return

    async def _send(self, body: JsonObject) -> None:
        await self._send_text(orjson.dumps(body))

    async def _send_text(self, data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S), self._turn:
            await self._socket.send_frame(data, WSMsgType.TEXT)

    async def _send_bytes(self, data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S), self._turn:
            await self._socket.send_bytes(data)

    async def _close(self, code: int, message: str) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._socket.close(code=code, message=message.encode())
        except TimeoutError:
            self._cut_off()

    def _cut_off(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


def preview_frame(facts: bytes, content: bytes) -> bytes:
    """Write a preview as ComfyUI writes its type 4, so that its clients can read it."""
    return struct.pack(">II", _PREVIEW_FRAME, len(facts)) + facts + content


def _frame(channel: str, message: Message) -> bytes:
    head = orjson.dumps({"op": message.kind, "channel": channel})[:-1]
    if message.kind == "event":
        return head + b',"position":' + orjson.dumps(message.id) + b',"event":' + message.data + b"}"
    if message.kind == "snapshot":
        return head + b',"position":' + orjson.dumps(message.id) + b',"snapshot":' + message.data + b"}"
    return head + b"," + message.data[1:]


def _kind(channel: str) -> str:
    return channel.partition(":")[0]


def _reach(caller: Caller) -> tuple[object, ...]:
    """What a caller may see; the scopes of a tenant's key beyond reading are asked for when they are needed."""
    return caller.tenant_id, caller.job_ids, caller.user_id


def _object(text: str) -> JsonObject | None:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _text(asked: JsonObject, name: str) -> str:
    found = asked.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= 8_192:
        raise Problem("invalid_input", f"{name} is a text")
    return found

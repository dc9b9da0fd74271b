"""A whole ingest service on a real store and a real port, and a client that holds every answer against the API's own
description: an undeclared status, field or problem fails the test that met it.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from contracts.settings import Settings
from contracts.store import Store, keys
from services.ingest.app import ROUTES
from services.ingest.edge.problems import CATALOGUE
from services.ingest.routes import Route
from services.ingest.service import IngestService
from services.ingest.views.schemas import ProblemDocument

ADMIN_KEY = "sk_test_admin_0123456789"
JOB_SCOPES = ["jobs:write", "jobs:read", "events:read", "models:read"]
JOB = {"userId": "u_42", "prompt": "an onion", "model": "draw"}

PIPELINES = """
[models.draw]
entry = "draw.py"
inputs = "draw.json"
pools = ["default", "large"]
vram_mib = 1
timeout_s = 30
[models.echo]
entry = "draw.py"
inputs = "echo.json"
vram_mib = 1
[models.edit]
entry = "draw.py"
inputs = "edit.json"
vram_mib = 1
"""
DRAW = {
    "type": "object",
    "required": ["prompt"],
    "additionalProperties": False,
    "properties": {
        "prompt": {"type": "string", "pattern": "\\S", "maxLength": 1000},
        "steps": {"type": "integer", "minimum": 1, "maximum": 150},
        "seed": {"type": "integer", "minimum": 0, "maximum": 999_999},
    },
}
FILE = {"type": "string", "format": "uri", "x-headrace": "file"}
EDIT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "prompt": {"type": "string"},
        "image": FILE,
        "frames": {"type": "array", "items": FILE},
        "inputArtifacts": {"type": "array", "items": {"type": "string"}},
    },
}


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: Any
    raw: bytes = b""

    @property
    def code(self) -> str | None:
        """The code of a problem."""
        return self.body.get("code") if isinstance(self.body, dict) else None

    @property
    def pointers(self) -> list[str]:
        """Where a problem says the faults are."""
        return [fault["pointer"] for fault in self.body.get("errors", [])]


@dataclass
class Api:
    """The service and a client of it."""

    service: IngestService
    session: aiohttp.ClientSession
    key: str = ""
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.service.context.store

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    async def tenant(self, name: str, scopes: list[str] | None = None, **limits: int) -> str:
        """Make a tenant and return a key of it."""
        made = await self.admin("POST", "/admin/v1/tenants", json={"id": name, "limits": limits})
        assert made.status == 201, made.body
        self.secrets[name] = made.body["webhookSecret"]
        return await self.new_key(name, scopes)

    async def new_key(self, tenant: str, scopes: list[str] | None = None) -> str:
        made = await self.admin("POST", f"/admin/v1/tenants/{tenant}/keys", json={"scopes": scopes or JOB_SCOPES})
        assert made.status == 201, made.body
        return str(made.body["key"])

    async def admin(self, method: str, path: str, **more: Any) -> Answer:
        return await self.call(method, path, key=ADMIN_KEY, **more)

    async def submit(self, key: str | None = None, *, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
        return await self.call("POST", "/v1/jobs", key=key, json=JOB | fields, headers=headers)

    async def job(self, **fields: Any) -> str:
        """Submit and return the id."""
        made = await self.submit(**fields)
        assert made.status == 201, made.body
        return str(made.body["id"])

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.call("GET", path, **more)

    async def call(
        self, method: str, path: str, *, key: str | None = None, headers: dict[str, str] | None = None, **more: Any
    ) -> Answer:
        """Send a request and hold its answer against the route's description."""
        key = self.key if key is None else key
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        if "data" in more:
            sent["Content-Type"] = "application/json"
        async with self.session.request(method, self.url + path, headers=sent | (headers or {}), **more) as response:
            raw = await response.read()
            is_json = response.content_type.endswith(("/json", "+json"))
            body = orjson.loads(raw) if raw and is_json else raw
            answer = Answer(response.status, {k.lower(): v for k, v in response.headers.items()}, body, raw)
        self._hold(method, path, answer, response.content_type)
        return answer

    def _hold(self, method: str, path: str, answer: Answer, content_type: str) -> None:
        route = self._route(method, path.partition("?")[0])
        assert answer.headers["x-request-id"]
        if content_type == "application/problem+json":
            document = ProblemDocument.model_validate(answer.body)
            assert document.status == answer.status == CATALOGUE[document.code].status
            assert ("retry-after" in answer.headers) or answer.status not in (429, 503)
            return
        assert route is not None, f"{method} {path} answered {answer.status} without a route"
        assert answer.status in dict(route.replies), f"{route.path} does not declare {answer.status}"
        if (
            route.reply is not None
            and isinstance(answer.body, dict)
            and "status" in answer.body
            and answer.status == 202
        ):
            return  # the short answer of a result that is not there yet, or a job
        if route.reply is not None and isinstance(answer.body, dict) and "expired" not in answer.body:
            route.reply.model_validate(answer.body)

    def _route(self, method: str, path: str) -> Route | None:
        routes = self.service.app[ROUTES]
        return next((each for each in routes if each.method == method and _matches(each.path, path)), None)


def _matches(template: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) is not None


def write_pipelines(folder: Path) -> Path:
    """Write a pipelines file with two small models."""
    folder.mkdir(exist_ok=True)
    (folder / "draw.py").write_text("def run(model, inputs, job):\n    return {}\n")
    (folder / "draw.json").write_bytes(orjson.dumps(DRAW))
    (folder / "edit.json").write_bytes(orjson.dumps(EDIT))
    (folder / "echo.json").write_bytes(b'{"type": "object"}')
    (folder / "pipelines.toml").write_text(PIPELINES)
    return folder / "pipelines.toml"


def settings_for(store_url: str, folder: Path, **groups: dict[str, object]) -> Settings:
    """Return settings for a service below `folder`."""
    # A loaded machine may need longer than a caller waits; what happens after that is for the tests about it.
    ingest = {"port": 0, "store_timeout_s": 15, **groups.pop("ingest", {})}
    return Settings.model_validate(
        {
            "redis": {"url": store_url},
            "ingest": ingest,
            "admin": {"key": ADMIN_KEY},
            "data_dir": folder / "data",
            "pipelines": write_pipelines(folder / "pipelines"),
            "public_url": "https://gen.example",
            **groups,
        }
    )


@asynccontextmanager
async def running_api(settings: Settings) -> AsyncIterator[Api]:
    """Start the service, wait until its store is open, give a client with one tenant `t_a`."""
    service = IngestService(settings)
    await service.start()
    async with aiohttp.ClientSession() as session:
        api = Api(service, session)
        try:
            await service.context.opened.wait()
            api.key = await api.tenant("t_a")
            yield api
        finally:
            await service.stop()


async def log_length(api: Api, pool: str = "default") -> int:
    """Return how many events the pool's log holds."""
    return int(await api.store.client.xlen(keys.log(pool)))

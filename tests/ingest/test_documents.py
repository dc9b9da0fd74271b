"""What anybody may read without a key: true of what is served, and harmless to whom reads it in a browser."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from contracts.events import CATALOGUE, WEBHOOK_EVENTS
from services.ingest.app import ROUTES
from tests.ingest.api import Api


async def test_every_type_of_events_is_described_and_its_example_fits_its_schema(api: Api) -> None:
    listed = (await api.get("/v1/event-types", key="")).body["data"]

    assert {each["type"] for each in listed} == set(CATALOGUE)
    for about in listed:
        one = (await api.get(f"/v1/event-types/{about['type']}", key="")).body
        assert about == {name: one[name] for name in about}
        assert one["example"]["type"] == about["type"]
        jsonschema_rs.validator_for(one["schema"]).validate(one["example"]["data"])
    assert (await api.get("/v1/event-types/job.teleported", key="")).code == "event_type_not_found"


async def test_what_tenants_are_not_shown_is_not_described_either(api: Api) -> None:
    """The fair choice names another tenant."""
    one = await api.get("/v1/event-types/job.assigned", key="")
    document = await api.get("/asyncapi.json", key="")

    assert "anchor" not in one.raw.decode()
    assert "anchor" not in document.body["components"]["schemas"]["JobAssigned"]["properties"]


async def test_the_asyncapi_document_names_streams_that_are_served_and_every_event_of_jobs(api: Api) -> None:
    document = (await api.get("/asyncapi.json", key="")).body
    served = {route.path for route in api.service.app[ROUTES]}

    assert document["asyncapi"].startswith("3.")
    assert {channel["address"] for channel in document["channels"].values()} <= served
    assert set(document["components"]["messages"]) == WEBHOOK_EVENTS
    text = (await api.get("/asyncapi.json", key="")).raw.decode()
    for reference in re.findall(r'"#/([^"]+)"', text):
        node = document
        for step in reference.split("/"):
            node = node[step]


async def test_the_page_of_the_api_loads_nothing_from_elsewhere(api: Api) -> None:
    page = await api.get("/docs", key="")
    html = page.raw.decode()
    linked = re.findall(r'(?:src|href)="([^"]+)"', html)

    assert linked
    assert all(path.startswith("/docs/") for path in linked)
    assert "<script>" not in html
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    for path in linked:
        answer = await api.get(path, key="")
        assert answer.status == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        tag = answer.headers["etag"]
        assert (await api.get(path, key="", headers={"If-None-Match": tag})).status == 304
    assert (await api.get("/docs/..%2fsetup.py", key="")).code == "not_found"


async def test_the_page_reads_the_document_in_the_version_it_knows(api: Api) -> None:
    document = (await api.get("/docs/openapi.json", key="")).body

    assert document["openapi"] == "3.0.3"
    assert set(document["paths"]) == set((await api.get("/openapi.json")).body["paths"])
    assert document["components"]["schemas"]["Job"]["properties"]["phase"]["nullable"] is True
    assert '{"type":"null"}' not in (await api.get("/docs/openapi.json", key="")).raw.decode()
    assert not set(_words_of_schemas(document)) & {"const", "examples", "patternProperties", "propertyNames"}
    assert _properties(document) == _properties((await api.get("/openapi.json")).body)


async def test_no_two_operations_have_the_same_id(api: Api) -> None:
    """Generators of clients make a function of each."""
    paths = (await api.get("/openapi.json")).body["paths"]
    ids = [operation["operationId"] for path in paths.values() for operation in path.values()]

    assert {each for each, often in Counter(ids).items() if often > 1} == set()


def _words_of_schemas(node: Any) -> Iterator[str]:
    """The words that stand in an object of the document, without the names that are ours."""
    if isinstance(node, list):
        for each in node:
            yield from _words_of_schemas(each)
    elif isinstance(node, dict):
        for word, value in node.items():
            yield word
            ours = isinstance(value, dict) and word in ("properties", "paths", "schemas")
            yield from _words_of_schemas([*value.values()] if ours else value)


def _properties(document: Any) -> dict[str, set[str]]:
    return {name: set(schema.get("properties", ())) for name, schema in document["components"]["schemas"].items()}

"""A header that decides something stands in a request once: which of two counts would be a guess."""

import re

from multidict import CIMultiDict

from services.ingest.app import ROUTES
from tests.ingest.api import ADMIN_KEY, JOB, Api, log_length


async def test_two_keys_are_no_key_on_any_route_in_either_order(api: Api) -> None:
    """A proxy that checks the last while we take the first lets anybody in."""
    for route in api.service.app[ROUTES]:
        if route.scope is None:
            continue
        path = re.sub(r"\{\w+\}", "x", route.path)
        for keys in ([ADMIN_KEY, api.key], [api.key, ADMIN_KEY], [api.key, api.key], ["", api.key]):
            headers = CIMultiDict([("Authorization", f"Bearer {key}") for key in keys])
            async with api.session.request(route.method, api.url + path, headers=headers) as response:
                assert (response.status, (await response.json())["code"]) == (400, "bad_request"), (route.path, keys)


async def test_two_idempotency_keys_make_no_job(api: Api) -> None:
    headers = CIMultiDict([("Authorization", f"Bearer {api.key}"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")])

    async with api.session.post(api.url + "/v1/jobs", json=JOB, headers=headers) as response:
        assert response.status == 400
        assert "only once" in (await response.json())["detail"]
    assert await log_length(api) == 0

"""HEAD answers as GET does, without the body: `curl -I` of a result, health checks of proxies."""

from services.ingest.app import ROUTES
from tests.ingest.api import ADMIN_KEY, Api
from tests.ingest.test_artifacts import keep

# What differs between any two answers, and how a body is framed that one of them has not (RFC 9110, 9.3.2).
_OF_THE_MOMENT = ("date", "x-request-id", "transfer-encoding")


async def test_every_get_route_answers_head_with_the_same_head(api: Api) -> None:
    job_id = await api.job()
    artifact = keep(api, job_id)
    # Measured while the first request is counted, or aged: their lengths differ between two answers.
    unsteady = ("/metrics", "/readyz", "/admin/v1/consumers")
    paths = {
        route.path.format(id=artifact if "artifacts/{id}" in route.path else job_id, name="draw", tenant="t_a",
                          key="key_none", worker="wrk_none", pool="default", model="draw",
                          type="job.completed", file="swagger-ui.css"): route.media_type
        for route in api.service.app[ROUTES]
        if route.method == "GET"
    }  # fmt: skip

    assert len(paths) > 15
    for path, media_type in paths.items():
        answers = []
        for method in ("GET", "HEAD"):
            key = ADMIN_KEY if path.startswith("/admin") else api.key
            async with api.session.request(
                method, api.url + path, headers={"Authorization": f"Bearer {key}"}
            ) as response:
                is_endless = method == "GET" and media_type == "text/event-stream" and response.status == 200
                raw = b"..." if is_endless else await response.read()
                headers = {name.lower(): value for name, value in response.headers.items()}
            assert (raw == b"") == (method == "HEAD"), (method, path)
            skipped = (
                (*_OF_THE_MOMENT, "content-length") if path in unsteady or response.status >= 400 else _OF_THE_MOMENT
            )
            answers.append((response.status, {n: v for n, v in headers.items() if n not in skipped}))
        assert answers[0] == answers[1], path


async def test_head_needs_the_key_that_get_needs(api: Api) -> None:
    path = f"/v1/artifacts/{keep(api, await api.job())}/content"

    async with api.session.head(api.url + path) as response:
        assert response.status == 401


async def test_the_connection_goes_on_after_a_head_of_a_file(api: Api) -> None:
    """A body after a HEAD would be read as the next answer."""
    path = f"/v1/artifacts/{keep(api, await api.job())}/content"

    for _ in range(3):
        async with api.session.head(api.url + path, headers={"Authorization": f"Bearer {api.key}"}) as response:
            assert (response.status, response.headers["Content-Length"]) == (200, "1024")
    assert (await api.get(path)).status == 200

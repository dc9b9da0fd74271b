"""The demo's receiver believes nobody but the holder of the secret."""

import base64
from datetime import UTC, datetime

import aiohttp
import pytest
from standardwebhooks import Webhook

from headrace.webhooks.demo_receiver import DemoReceiver

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()
BODY = '{"type":"job.completed"}'


async def call(url: str, secret: str, body: str = BODY) -> int:
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign("evt_1", now, BODY),
    }
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as response:
        return response.status


async def test_a_signed_call_is_received() -> None:
    async with DemoReceiver(SECRET) as receiver:
        assert await call(receiver.url, SECRET) == 204

        assert await receiver.wait_for("job.completed", 10) == "job.completed"


async def test_a_call_with_another_secret_or_another_body_is_refused() -> None:
    async with DemoReceiver(SECRET) as receiver:
        assert await call(receiver.url, OTHER) == 400
        assert await call(receiver.url, SECRET, BODY.replace("completed", "failed")) == 400

        assert receiver.refused == 2
        with pytest.raises(TimeoutError):
            await receiver.wait_for("job.completed", 0.1)

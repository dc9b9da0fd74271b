"""What redis-py's connections leave to chance."""

import asyncio

from contracts.store.clients import command_client


async def test_a_cancel_that_comes_as_a_command_has_just_been_sent_is_not_forgotten(store_url):
    """A task that forgets it lives on: a consumer believed dead held what it had read, and a stop waited for ever."""
    client = command_client(store_url)
    connection = client.connection_pool.make_connection()
    await connection.connect()
    sent = connection._send_packed_command

    async def sent_and_cancelled(command):
        await sent(command)
        task.cancel()

    async def ping() -> None:
        await connection.send_command("PING")
        await connection.read_response()

    connection._send_packed_command = sent_and_cancelled
    task = asyncio.create_task(ping())
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()
    await connection.disconnect()
    await client.aclose()

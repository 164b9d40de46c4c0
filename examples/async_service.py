"""Serve over asyncio, and run jobs at their ticks beside it: start it as often as you like, on as many hosts (C10).

Run ``DATABASE_URL=postgresql://… python examples/async_service.py`` after `tenure schema apply`, in two terminals. One
of them seeds the catalogue, both wait for that, then both serve and share the ticks. Kill one in the middle of a run
(``kill -9``): the other finishes it when the lease has run out, under the same key, and each order is there once.
Ctrl-C or SIGTERM ends one in order: its callbacks end first.

``curl localhost:PORT/`` shows how many orders there are; ``/health`` answers 503 when the scheduler does not turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta

import psycopg

from tenure import AsyncJobSchedulerService
from tenure.scheduling import AsyncJobRun, AsyncScheduler, Every, Retry

DATABASE_URL = os.environ["DATABASE_URL"]

jobs = AsyncJobSchedulerService(DATABASE_URL)
scheduler = AsyncScheduler(jobs, poll=timedelta(seconds=1), drain=timedelta(seconds=10))


@scheduler.initial("seed-catalogue", lease=timedelta(seconds=5))
async def seed(run: AsyncJobRun) -> None:
    """Make the tables and fill the catalogue, once for ever: in the transaction that completes the run."""
    async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
        await connection.execute("CREATE TABLE catalogue (article text)")
        await connection.execute("CREATE TABLE orders (tick timestamptz, attempt int, node int)")
        await connection.execute("INSERT INTO catalogue VALUES ('paper'), ('pencil')")
        await run.complete(connection)


@scheduler.job(
    "sync-orders",
    schedule=Every(timedelta(seconds=1)),  # or Cron("*/5 * * * *", timezone="Europe/Paris")
    lease=timedelta(seconds=2),  # so short that you see the takeover; 15 minutes unless given
    retry=Retry(max_attempts=5, first=timedelta(seconds=1)),
    catch_up="all",
    overlap="allow",
    timeout=timedelta(seconds=30),
)
async def sync_orders(run: AsyncJobRun) -> None:
    """Fetch an order and store it, in the transaction that completes the run: so it is stored once."""
    await asyncio.sleep(0.3)  # the shop answers
    async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
        await connection.execute("INSERT INTO orders VALUES (%s, %s, %s)", [run.scheduled_at, run.attempt, os.getpid()])
        await run.complete(connection, {"orders": 1})


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request."""
    path = (await reader.readline()).split()[1:2]
    if path == [b"/health"]:
        status, text = ("200 OK", "turning") if scheduler.healthy() else ("503 Service Unavailable", "standing still")
    else:
        async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
            cursor = await connection.execute("SELECT count(*) FROM orders")
            status, text = "200 OK", f"{(await cursor.fetchone() or [0])[0]} orders"
    writer.write(f"HTTP/1.0 {status}\r\nContent-Length: {len(text) + 1}\r\n\r\n{text}\n".encode())
    await writer.drain()
    writer.close()


async def main(port: int) -> None:
    """Serve until a signal ends it. The catalogue is there before the first request is answered."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with jobs, scheduler:
        server = await asyncio.start_server(answer, "127.0.0.1", port)
        print(f"serving on port {server.sockets[0].getsockname()[1]}", flush=True)
        await stopping.wait()
        server.close()
    print("stopped in order", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 0))

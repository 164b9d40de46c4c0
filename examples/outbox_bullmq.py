"""Hand jobs to BullMQ from a transaction: each order is mailed once, though the relay is killed in the middle.

The orders, the messages about them and the end of the run commit together. A relay hands the messages to BullMQ, over
Redis, with `jobId=external_job_id(key)`: BullMQ drops a job whose id it knows, for as long as it keeps that job. So
jobs that are done are kept for longer than a relay may need to repeat itself. Here the relay is killed with SIGKILL
twice: once after a message went to Redis and before that was recorded, once before it went.

Run it with `python examples/outbox_bullmq.py postgresql://… redis://…` (or DATABASE_URL and REDIS_URL), on a database
with tenure's schema. It needs `pip install bullmq`. The worker may as well be one of BullMQ for Node.js.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from bullmq import Job, Queue, Worker  # type: ignore[import-untyped] # it has no types

from tenure import AsyncJobSchedulerService, JobAcquireOptions, JobExecutionLease
from tenure.outbox import AsyncOutbox, OutboxMessage

ORDERS = 20
CLAIM = timedelta(seconds=1)
QUEUE = "orders"
KEPT = {"removeOnComplete": {"age": 24 * 3600}, "removeOnFail": {"age": 7 * 24 * 3600}}
"""How long BullMQ keeps jobs that have ended, and with them their ids."""
DEATHS = ("after 7", "before 5", "never")
"""When each relay is killed: after, or before, it publishes its message of that number; the last one lives."""


async def take_orders(database_url: str) -> None:
    """Store the orders, what is to be mailed, and the end of the run, in one transaction."""
    async with AsyncJobSchedulerService(database_url) as service, AsyncOutbox(database_url) as outbox:

        async def work(lease: JobExecutionLease) -> None:
            async with await psycopg.AsyncConnection.connect(database_url) as connection:
                for number in range(ORDERS):
                    await connection.execute("INSERT INTO orders VALUES (%s)", [number])
                    key = f"{lease.idempotency_key}/order-{number}"
                    await outbox.enqueue_once(key, "mail", {"number": number}, connection=connection)
                await service.complete(lease, {"orders": ORDERS}, connection=connection)

        await service.run_exclusive(JobAcquireOptions(code="orders", run_key=uuid4().hex), work)


async def relay(database_url: str, redis_url: str, death: str) -> None:
    """Hand messages to BullMQ until this process is killed."""
    moment, _, at = death.partition(" ")
    queue = Queue(QUEUE, {"connection": redis_url})
    published = 0

    async def publish(message: OutboxMessage) -> None:
        nonlocal published
        published += 1
        doomed = at == str(published)
        if doomed and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await queue.add(message.type, message.payload, {"jobId": message.external_job_id, **KEPT})
        if doomed:
            os.kill(os.getpid(), signal.SIGKILL)

    async with AsyncOutbox(database_url) as outbox:
        await outbox.run(publish, claim=CLAIM)


async def mail(database_url: str, job: Job) -> None:
    """Mail an order; nothing here keeps it from being done twice."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute("INSERT INTO mails VALUES (%s)", [job.data["number"]])


async def start(*words: str) -> asyncio.subprocess.Process:
    """Start this file again, as a relay."""
    return await asyncio.create_subprocess_exec(sys.executable, __file__, *words)


def rows(database_url: str, query: str) -> list[tuple[Any, ...]]:
    """Send a query and give its rows."""
    with psycopg.connect(database_url) as connection:
        return connection.execute(query.encode()).fetchall()


async def wait_until_all_is_sent(database_url: str) -> None:
    """Wait until every order was mailed and every message is recorded as sent."""
    until_s = time.monotonic() + 45
    unsent = 'SELECT FROM "job-scheduler_outbox" WHERE "doneAt" IS NULL'
    while rows(database_url, unsent) or len(rows(database_url, "SELECT FROM mails")) < ORDERS:
        assert time.monotonic() < until_s, "the mails did not arrive in time"
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)


async def main(database_url: str, redis_url: str) -> None:
    """Take the orders, kill relays, and count."""
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (number int)")
        connection.execute("CREATE TABLE IF NOT EXISTS mails (number int)")
    await take_orders(database_url)
    print(f"{ORDERS} orders and the messages about them were committed together.")

    async def process(job: Job, _token: str) -> None:
        await mail(database_url, job)

    worker = Worker(QUEUE, process, {"connection": redis_url})
    relays: list[asyncio.subprocess.Process] = []
    try:
        for death in DEATHS:
            relays.append(await start(database_url, redis_url, death))
            if death != "never":
                assert await relays[-1].wait() == -signal.SIGKILL
                print(f"A relay was killed {death.replace(' ', ' its message ')}.")
        await wait_until_all_is_sent(database_url)
    finally:
        if relays[-1].returncode is None:
            relays[-1].terminate()
            await relays[-1].wait()
        await worker.close()
    ((repeated,),) = rows(database_url, 'SELECT count(*) FROM "job-scheduler_outbox" WHERE "attempt" > 1')
    print(f"{repeated} messages were handed over twice.")
    mails = rows(database_url, "SELECT number, count(*) FROM mails GROUP BY number")
    assert [times for _, times in mails] == [1] * ORDERS
    print(f"{len(mails)} mails were sent, one for each order.")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    addresses = given.get(0) or os.environ["DATABASE_URL"], given.get(1) or os.environ["REDIS_URL"]
    asyncio.run(relay(*addresses, given[2]) if 2 in given else main(*addresses))

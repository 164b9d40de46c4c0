"""Hand jobs to Celery from a transaction: each order is mailed once, though the relay is killed in the middle.

The orders, the messages about them and the end of the run commit together. A relay hands the messages to Celery, over
Redis, with `task_id=external_job_id(key)`: the same id however often it has to repeat itself. Celery does not drop a
second task with the same id, so the task does: its effect and its id are one transaction. Here the relay is killed with
SIGKILL twice, once after a message went to the broker and before that was recorded, once before it went.

Run it with `python examples/outbox_celery.py postgresql://… redis://…` (or DATABASE_URL and REDIS_URL), on a database
with tenure's schema. It needs `pip install 'celery[redis]'`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from uuid import uuid4

import psycopg
from celery import Celery  # type: ignore[import-untyped] # it has no types

from tenure import JobAcquireOptions, JobExecutionLease, JobSchedulerService
from tenure.outbox import Outbox, OutboxMessage

ORDERS = 20
CLAIM = timedelta(seconds=1)
DEATHS = ("after 7", "before 5", "never")
"""When each relay is killed: after, or before, it publishes its message of that number; the last one lives."""

database_url, redis_url, role, *words = (*sys.argv[1:], *("",) * 3)[: max(len(sys.argv) - 1, 3)]
database_url = database_url or os.environ.get("DATABASE_URL", "")
redis_url = redis_url or os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")

app = Celery("orders", broker=redis_url)
app.conf.update(
    task_acks_late=True,  # a task whose worker dies is delivered again
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(bind=True, name="orders.mail")  # type: ignore[untyped-decorator,unused-ignore] # it has no types
def mail(task: object, number: int) -> None:
    """Mail an order, unless a task with this id has done so; the id and the effect commit together."""
    task_id = task.request.id  # type: ignore[attr-defined] # it has no types
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO deliveries VALUES (%s)", [task_id])
        known = connection.execute("INSERT INTO tasks VALUES (%s) ON CONFLICT DO NOTHING", [task_id]).rowcount == 0
        if not known:
            connection.execute("INSERT INTO mails VALUES (%s)", [number])


def take_orders() -> None:
    """Store the orders, what is to be mailed, and the end of the run, in one transaction."""

    def work(lease: JobExecutionLease) -> None:
        with psycopg.connect(database_url) as connection:
            for number in range(ORDERS):
                connection.execute("INSERT INTO orders VALUES (%s)", [number])
                key = f"{lease.idempotency_key}/order-{number}"
                outbox.enqueue_once(key, "mail", {"number": number}, connection=connection)
            service.complete(lease, {"orders": ORDERS}, connection=connection)

    with JobSchedulerService(database_url) as service, Outbox(database_url) as outbox:
        service.run_exclusive(JobAcquireOptions(code="orders", run_key=uuid4().hex), work)


def relay(death: str) -> None:
    """Hand messages to Celery until this process is killed."""
    moment, _, at = death.partition(" ")
    published = 0

    def publish(message: OutboxMessage) -> None:
        nonlocal published
        published += 1
        doomed = at == str(published)
        if doomed and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        mail.apply_async([message.payload["number"]], task_id=message.external_job_id)
        if doomed:
            os.kill(os.getpid(), signal.SIGKILL)

    with Outbox(database_url) as outbox:
        outbox.run(publish, claim=CLAIM)


def start(role: str, *words: str) -> subprocess.Popen[bytes]:
    """Start this file again, as a relay or a worker."""
    command = [sys.executable, __file__, database_url, redis_url, role, *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - this very file


def count(table: str) -> int:
    """Count the rows of a table."""
    with psycopg.connect(database_url) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    return int(found[0]) if found else 0


def wait_for_mails() -> None:
    """Wait until all orders were mailed, and a little longer for repeats."""
    until_s = time.monotonic() + 45
    while count("mails") < ORDERS or count("deliveries") <= ORDERS:
        assert time.monotonic() < until_s, "the mails did not arrive in time"
        time.sleep(0.1)
    time.sleep(0.5)


def main() -> None:
    """Take the orders, kill relays, and count."""
    with psycopg.connect(database_url) as connection:
        for definition in (
            "orders (number int)",
            "mails (number int)",
            "deliveries (id text)",
            "tasks (id text PRIMARY KEY)",
        ):
            connection.execute(f"CREATE TABLE IF NOT EXISTS {definition}".encode())
    take_orders()
    print(f"{count('orders')} orders and the messages about them were committed together.")
    children = [start("worker")]
    try:
        for death in DEATHS:
            children.append(start("relay", death))
            if death != "never":
                assert children[-1].wait(30) == -signal.SIGKILL
                print(f"A relay was killed {death.replace(' ', ' its message ')}.")
        wait_for_mails()
    finally:
        for child in children:
            child.terminate()
            child.wait(20)
    print(f"{count('deliveries') - count('tasks')} repeated delivery was dropped by its task id.")
    print(f"{count('mails')} mails were sent, one for each order.")


if __name__ == "__main__":
    if role == "relay":
        relay(*words)
    elif role == "worker":
        app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR", "--without-gossip", "--without-mingle"])
    else:
        main()

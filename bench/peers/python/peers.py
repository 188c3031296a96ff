"""Python's libraries at the same job: `peers.py PORT SECONDS` prints lines of `job library calls-a-second`."""

import asyncio
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

PORT, SECONDS = int(sys.argv[1]), float(sys.argv[2])
TASKS = 64
KEYS = 500


async def pace(call):
    """Calls a second, by 64 tasks."""
    end, count = time.monotonic() + SECONDS, 0

    async def caller():
        nonlocal count
        while time.monotonic() < end:
            await call()
            count += 1

    begun = time.monotonic()
    await asyncio.gather(*(caller() for _ in range(TASKS)))
    return count / (time.monotonic() - begun)


def pace_in_threads(call):
    """The same for a library that blocks. Threads share one interpreter, so that more of them would not help."""
    end = time.monotonic() + SECONDS

    def caller(_):
        count = 0
        while time.monotonic() < end:
            call()
            count += 1
        return count

    begun = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        return sum(threads.map(caller, range(8))) / (time.monotonic() - begun)


async def idemkit():
    from idemkit import RedisBackend, idempotent

    backend = RedisBackend.from_url(f"redis://127.0.0.1:{PORT}", max_connections=TASKS + 8, namespace="idemkit")

    @idempotent(backend=backend)
    async def pay(key):
        return {"paid": 42}

    keys = [uuid.uuid4().hex for _ in range(KEYS)]
    for key in keys:
        await pay(key)
    turn = iter(range(10**9))
    fresh = await pace(lambda: pay(uuid.uuid4().hex))
    replay = await pace(lambda: pay(keys[next(turn) % KEYS]))
    print("fresh", "idemkit", fresh)
    print("replay", "idemkit", replay)
    await backend.aclose()


def powertools():
    import redis
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent_function
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer

    layer = RedisCachePersistenceLayer(client=redis.Redis(port=PORT, decode_responses=True))

    @idempotent_function(data_keyword_argument="key", persistence_store=layer, config=IdempotencyConfig())
    def pay(key):
        return {"paid": 42}

    keys = [uuid.uuid4().hex for _ in range(KEYS)]
    for key in keys:
        pay(key=key)
    turn = iter(range(10**9))
    print("fresh", "powertools-python", pace_in_threads(lambda: pay(key=uuid.uuid4().hex)))
    print("replay", "powertools-python", pace_in_threads(lambda: pay(key=keys[next(turn) % KEYS])))


async def locks():
    import redis.asyncio

    client = redis.asyncio.Redis(port=PORT, max_connections=TASKS + 8)

    async def pair():
        lock = client.lock(f"py:{uuid.uuid4().hex}", timeout=30)
        await lock.acquire()
        await lock.release()

    print("lock", "redis-py", await pace(pair))
    await client.aclose()


asyncio.run(idemkit())
powertools()
asyncio.run(locks())

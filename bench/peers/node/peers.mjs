// Node's libraries at the same job: `peers.mjs PORT SECONDS` prints lines of `job library calls-a-second`.
import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache';
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { Idempotency } from '@node-idempotency/core';
import { RedisStorageAdapter } from '@node-idempotency/storage-adapter-redis';
import { createClient } from '@redis/client';
import Redis from 'ioredis';
import { Mutex } from 'redis-semaphore';
import Redlock from 'redlock';

const [port, seconds] = process.argv.slice(2).map(Number);
const TASKS = 64;
const KEYS = 500;
const url = `redis://127.0.0.1:${port}`;

/** Calls a second, by 64 tasks. */
async function pace(call) {
  const begun = performance.now();
  const end = begun + seconds * 1000;
  let count = 0;
  await Promise.all(
    Array.from({ length: TASKS }, async () => {
      while (performance.now() < end) {
        await call();
        count += 1;
      }
    }),
  );
  return (count * 1000) / (performance.now() - begun);
}

async function both(name, call) {
  const keys = Array.from({ length: KEYS }, () => randomUUID());
  for (const key of keys) await call(key);
  let turn = 0;
  console.log('fresh', name, await pace(() => call(randomUUID())));
  console.log('replay', name, await pace(() => call(keys[turn++ % KEYS])));
}

const storage = new RedisStorageAdapter({ url });
await storage.connect();
const idempotency = new Idempotency(storage, {});
await both('node-idempotency', async (key) => {
  const request = { headers: { 'idempotency-key': key }, path: '/pay', body: { amount: 42 }, method: 'POST' };
  if (await idempotency.onRequest(request)) return;
  await idempotency.onResponse(request, { body: { paid: 42 }, additional: { status: 200 } });
});
await storage.disconnect();

process.env.AWS_LAMBDA_FUNCTION_NAME = 'bench';
const client = await createClient({ url }).connect();
const config = new IdempotencyConfig({});
config.registerLambdaContext({ getRemainingTimeInMillis: () => 30_000 });
const persistenceStore = new CachePersistenceLayer({ client });
const pay = makeIdempotent(async () => ({ paid: 42 }), { persistenceStore, config });
await both('powertools-node', (key) => pay({ key }));
await client.close();

const ioredis = new Redis(port, '127.0.0.1');
const redlock = new Redlock([ioredis]);
const pair = async () => {
  const lock = await redlock.acquire([`redlock:${randomUUID()}`], 30_000);
  await lock.release();
};
console.log('lock', 'redlock', await pace(pair));
const mutexed = async () => {
  const mutex = new Mutex(ioredis, randomUUID(), { lockTimeout: 30_000 });
  await mutex.acquire();
  await mutex.release();
};
console.log('lock', 'redis-semaphore', await pace(mutexed));
ioredis.disconnect();

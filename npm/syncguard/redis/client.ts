/** The client transport: runs scripts through a client's own `eval`. */

import type { RedisScriptCall } from "./addon.js";
import { isNodeRedis } from "./client-settings.js";
import { kindOfCluster } from "./cluster.js";
import type { RedisClient } from "./types.js";

type IoredisEval = (script: string, numKeys: number, ...rest: string[]) => unknown;
type NodeRedisEval = (script: string, options: { keys: string[]; arguments: string[] }) => unknown;

/** The function that runs a script on `client`. */
export function runOnClient(client: RedisClient): (call: RedisScriptCall) => Promise<unknown> {
  // Called as a method, because clients need `this`, and looked up each time, because tests replace `eval`.
  if (isNodeRedis(client)) {
    const target = promising(client) as { eval: NodeRedisEval };
    const call = async ({ script, keys, args }: RedisScriptCall): Promise<unknown> =>
      plain(await target.eval(script, { keys, arguments: args }));
    return kindOfCluster(client) === undefined
      ? call
      : (script) => callCluster(client, call, script);
  }
  const target = client as { eval: IoredisEval };
  const isMock = isPlainObject(client);
  return async (call) => {
    const { script, keys, args } = call;
    const reply = plain(await target.eval(script, keys.length, ...keys, ...args));
    return isMock && reply === 1 ? inFull(call) : reply;
  };
}

/** Runs a script on a cluster of node-redis, which does not say in words that it is not connected. */
async function callCluster(
  client: RedisClient,
  call: (script: RedisScriptCall) => Promise<unknown>,
  script: RedisScriptCall,
): Promise<unknown> {
  if ((client as { isOpen?: unknown }).isOpen === false) throw new Error("The client is closed");
  try {
    return await call(script);
  } catch (error) {
    // It looks for a node where it knows of none yet, or not any more: nothing was sent.
    throw error instanceof TypeError ? new Error(`Cluster isn't ready: ${error.message}`) : error;
  }
}

/** Whether it is a plain object, that is a mock or a wrapper, and not a client of ioredis or the like. */
function isPlainObject(client: RedisClient): boolean {
  const { sendCommand, isCluster } = client as { sendCommand?: unknown; isCluster?: unknown };
  return typeof sendCommand !== "function" && isCluster === undefined;
}

/**
 * The full reply for a mock that answers every script with `1`, meaning success. A server's reply to the scripts that
 * acquire or extend a lock has more parts.
 */
function inFull({ keys, args }: RedisScriptCall): unknown {
  // Recognises the scripts by their arguments: only acquire has three keys; of the others with at least four arguments,
  // only extend has a number in the third place.
  if (keys.length === 3) return [1, 1, Date.now() + Number(args[1])];
  const [, , extendTtlMs = ""] = args;
  const isExtend = args.length > 3 && /^\d+$/.test(extendTtlMs);
  return isExtend ? [1, Date.now() + Number(extendTtlMs)] : 1;
}

/** The client whose methods return promises: in node-redis 4's legacy mode it is `v4`, a getter that otherwise throws. */
function promising(client: RedisClient): RedisClient {
  const { options } = client as { options?: { legacyMode?: boolean } };
  return options?.legacyMode === true ? (client as unknown as { v4: RedisClient }).v4 : client;
}

/** A reply as a JSON value: some clients give bytes or BigInts. */
function plain(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(plain);
  if (reply instanceof Uint8Array) return Buffer.from(reply).toString();
  return typeof reply === "bigint" ? reply.toString() : reply;
}

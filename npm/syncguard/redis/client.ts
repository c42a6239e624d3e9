/** The client transport: scripts through a client's own `eval`. */

import type { RedisScriptCall } from "./addon.js";
import { isNodeRedis } from "./client-settings.js";
import type { RedisClient } from "./types.js";

type IoredisEval = (script: string, numKeys: number, ...rest: string[]) => unknown;
type NodeRedisEval = (script: string, options: { keys: string[]; arguments: string[] }) => unknown;

/** How to run a script on `client`. */
export function runOnClient(client: RedisClient): (call: RedisScriptCall) => Promise<unknown> {
  // Called as a method, and looked up each time: clients need `this`, and tests replace `eval`.
  if (isNodeRedis(client)) {
    const target = promising(client) as { eval: NodeRedisEval };
    return async ({ script, keys, args }) =>
      plain(await target.eval(script, { keys, arguments: args }));
  }
  const target = client as { eval: IoredisEval };
  const isMock = isPlainObject(client);
  return async (call) => {
    const { script, keys, args } = call;
    const reply = plain(await target.eval(script, keys.length, ...keys, ...args));
    return isMock && reply === 1 ? inFull(call) : reply;
  };
}

/** Whether it is neither ioredis nor anything made like it: a mock, or a wrapper. */
function isPlainObject(client: RedisClient): boolean {
  const { sendCommand, isCluster } = client as { sendCommand?: unknown; isCluster?: unknown };
  return typeof sendCommand !== "function" && isCluster === undefined;
}

/**
 * What a mock means that answers every script with `1`: that it was carried out. Scripts that take a lock or extend it say
 * more than that, and no server says less.
 */
function inFull({ keys, args }: RedisScriptCall): unknown {
  // As the scripts are called: acquire has three keys; of those with four arguments or more, extend has a number third.
  if (keys.length === 3) return [1, 1, Date.now() + Number(args[1])];
  const [, , extendTtlMs = ""] = args;
  const isExtend = args.length > 3 && /^\d+$/.test(extendTtlMs);
  return isExtend ? [1, Date.now() + Number(extendTtlMs)] : 1;
}

/** In the legacy mode of node-redis 4, what returns promises is under `v4`; elsewhere that getter throws. */
function promising(client: RedisClient): RedisClient {
  const { options } = client as { options?: { legacyMode?: boolean } };
  return options?.legacyMode === true ? (client as unknown as { v4: RedisClient }).v4 : client;
}

/** A reply in the words of JSON: some clients give bytes, or big integers. */
function plain(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(plain);
  if (reply instanceof Uint8Array) return Buffer.from(reply).toString();
  return typeof reply === "bigint" ? reply.toString() : reply;
}

/** The client transport: runs scripts through a client's own `eval`. */

import { types } from "node:util";
import { delay } from "../native/signal.js";
import { isError, memberOf, messageOf } from "../native/thrown.js";
import { isGeneratedMethod } from "../options/clients.js";
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
    if (kindOfCluster(client) !== undefined) return runOnNodeRedisCluster(client);
    const target = promising(client) as { eval: NodeRedisEval };
    return async ({ script, keys, args, isUsers }) =>
      read(await target.eval(script, { keys, arguments: args }), isUsers);
  }
  const target = client as { eval: IoredisEval };
  const isMock = isPlainObject(client);
  const run = async (call: RedisScriptCall): Promise<unknown> => {
    const { script, keys, args, isUsers } = call;
    const reply = read(await target.eval(script, keys.length, ...keys, ...args), isUsers);
    return isMock && reply === 1 && !isUsers ? inFull(call) : reply;
  };
  return isIoredisMock(client) ? onIoredisMock(run) : run;
}

/** Whether it is a client of the package ioredis-mock, which runs scripts by a Lua of its own. */
function isIoredisMock(client: RedisClient): boolean {
  return /^_?RedisMock(Cluster)?$/.test(client.constructor?.name ?? "");
}

/** Says what it cannot do: its Lua has no cjson, and it makes functions of some replies. */
function onIoredisMock(
  run: (call: RedisScriptCall) => Promise<unknown>,
): (call: RedisScriptCall) => Promise<unknown> {
  return async (call) => {
    try {
      const reply = await run(call);
      if (typeof reply !== "function" && typeof reply !== "symbol") return reply;
      throw new TypeError(`it has answered with a ${typeof reply}`);
    } catch (error) {
      const isItsOwn =
        memberOf(error, "name") === "TypeError" || /^Error trying to load/.test(messageOf(error));
      if (!isItsOwn || call.isUsers) throw error;
      throw Object.assign(new Error(messageOf(error)), { code: "IOREDIS_MOCK" });
    }
  };
}

/** Runs scripts on a cluster of node-redis. */
function runOnNodeRedisCluster(client: RedisClient): (call: RedisScriptCall) => Promise<unknown> {
  const target = client as { eval: NodeRedisEval; isOpen?: unknown };
  const cluster4 = sendsAnywhere(client) ? (client as NodeRedisCluster4) : undefined;
  const send = async ({ script, keys, args }: RedisScriptCall): Promise<unknown> => {
    if (target.isOpen === false) throw new Error("The client is closed");
    try {
      if (cluster4 === undefined) return await target.eval(script, { keys, arguments: args });
      const command = ["EVAL", script, String(keys.length), ...keys, ...args];
      return await cluster4.sendCommand(keys[0], false, command);
    } catch (error) {
      // It does not say in words that it knows of no node yet, or not any more: nothing was sent.
      throw isError(error) && error.name === "TypeError"
        ? Object.assign(new Error(error.message), { code: "CLUSTER_NOT_READY" })
        : error;
    }
  };
  return async (call) => {
    for (let refusals = 0; ; refusals += 1) {
      try {
        return read(await send(call), call.isUsers);
      } catch (error) {
        if (refusals >= MOST_REFUSALS || !isOnItsWay(error)) throw error;
        await delay(REFUSAL_PAUSE_MS);
      }
    }
  };
}

/** How often a call is repeated while its keys move, and how long to wait: as ioredis does. */
const MOST_REFUSALS = 16;
const REFUSAL_PAUSE_MS = 100;

/** Whether a server has refused to run a script because some of its keys are on another node already. */
function isOnItsWay(error: unknown): boolean {
  return isError(error) && error.message.startsWith("TRYAGAIN ");
}

type NodeRedisCluster4 = RedisClient & {
  sendCommand: (firstKey: string | undefined, isReadonly: boolean, args: string[]) => unknown;
};

/**
 * Whether the cluster is one of node-redis 4, whose own `eval` takes the script for the options, finds no keys there, and
 * asks nodes in turn until one does not refuse.
 */
function sendsAnywhere(client: RedisClient): boolean {
  const is5 = "_execute" in client;
  return (
    !is5 && "sendCommand" in client && isGeneratedMethod(client, "eval", ["get", "set", "del"])
  );
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

const read = (reply: unknown, isUsers: boolean): unknown =>
  isUsers ? anything(reply) : plain(reply);

/**
 * The reply to a script of the user's as a JSON value, with the types of RESP2. Errors among several become objects with their words;
 * no other reply is an object.
 */
function anything(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(anything);
  if (isError(reply)) return { error: reply.message };
  if (types.isSet(reply)) return [...reply].map(anything);
  // A script has asked for the types of RESP3, and the client, too.
  if (types.isMap(reply)) return [...reply].flat().map(anything);
  if (typeof reply === "boolean") return Number(reply);
  if (typeof reply === "number") return Number.isInteger(reply) ? reply : String(reply);
  const isMap = typeof reply === "object" && reply !== null && !types.isUint8Array(reply);
  return isMap ? Object.entries(reply).flat().map(anything) : plain(reply);
}

/** A reply as a JSON value: some clients give bytes or BigInts. */
function plain(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(plain);
  if (types.isUint8Array(reply)) return Buffer.from(reply).toString();
  return typeof reply === "bigint" ? reply.toString() : reply;
}

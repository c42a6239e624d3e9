/** Clients of ioredis and node-redis that lead to a Redis Cluster. */

import { isDeepStrictEqual, types } from "node:util";
import type { RedisClientTraits, RedisNode, RedisSettings } from "../native/exports.js";
import { isGiven } from "../options/clients.js";
import { invalid } from "../options/validation.js";
import { isTlsUrl, type Reading, readNatMap } from "./connection.js";
import { readIoredis } from "./ioredis.js";
import { readNodeRedis } from "./node-redis.js";
import type { RedisClient } from "./types.js";

type Options = Record<string, unknown>;

/** The members by which clusters are recognised. */
type ClientMembers = {
  isCluster?: unknown;
  EVAL?: unknown;
  nodeByAddress?: unknown;
  getSlotMaster?: unknown;
  options?: unknown;
  startupNodes?: unknown;
  _options?: unknown;
};

/** What kind of cluster client it is, if it is one. */
export function kindOfCluster(client: RedisClient): "ioredis" | "node-redis" | undefined {
  const { isCluster, EVAL, nodeByAddress, getSlotMaster } = client as ClientMembers;
  if (isCluster === true) return "ioredis";
  if (typeof EVAL !== "function") return undefined;
  const isCluster5 = types.isMap(nodeByAddress);
  return isCluster5 || typeof getSlotMaster === "function" ? "node-redis" : undefined;
}

/** What the core must know of a client that it drives. */
export function traitsOf(client: RedisClient): RedisClientTraits {
  const kind = kindOfCluster(client);
  if (kind === undefined) return { isCluster: false };
  if (kind === "node-redis") return { isCluster: true, keyPrefix: "" };
  const { options } = client as ClientMembers;
  // A mock or a wrapper: what it does to keys is not known.
  if (typeof options !== "object" || options === null) return { isCluster: true };
  const { keyPrefix = "" } = options as { keyPrefix?: unknown };
  // With a hash tag in it, locks have other names, which all clients must use.
  if (typeof keyPrefix !== "string" && isGiven(keyPrefix)) {
    throw invalid("the client's keyPrefix must be a string in a redis cluster");
  }
  return { isCluster: true, keyPrefix: (keyPrefix as string | null) ?? "" };
}

/** Reads the settings of a cluster of ioredis or node-redis. */
export function readCluster(client: RedisClient, kind: "ioredis" | "node-redis"): Reading {
  const { startupNodes, options, _options } = client as ClientMembers;
  const all = kind === "ioredis" ? options : _options;
  if (typeof all !== "object" || all === null) {
    return { obstacle: "the settings, which cannot be read," };
  }
  return kind === "ioredis"
    ? readIoredisCluster(startupNodes, all as Options)
    : readNodeRedisCluster(all as Options);
}

function readIoredisCluster(startupNodes: unknown, options: Options): Reading {
  const { redisOptions, keyPrefix, natMap, useSRVRecords, dnsLookup } = options;
  if (useSRVRecords === true) return { obstacle: "useSRVRecords" };
  // Loaded only here, because nothing else needs it.
  const dns = require("node:dns") as { lookup: unknown };
  if (isGiven(dnsLookup) && dnsLookup !== dns.lookup) return { obstacle: "dnsLookup" };
  const ofAll = { ...(redisOptions as Options | undefined), keyPrefix };
  return join({
    name: "startupNodes",
    nodes: Array.isArray(startupNodes) ? startupNodes.map(ofIoredisNode) : [],
    read: (node) => readIoredis({ ...ofAll, ...node }),
    natMap: ["natMap", natMap],
    defaultHost: "127.0.0.1",
  });
}

/** The options of one node, which ioredis also takes as a port or as a text; `undefined` for anything else. */
function ofIoredisNode(node: unknown): Options | undefined {
  if (typeof node === "object" && node !== null) {
    // A cluster has no other database than 0, so that ioredis takes no notice of this one.
    const entries = Object.entries(node).filter(([name, value]) => name !== "db" && isGiven(value));
    return Object.fromEntries(entries);
  }
  if (typeof node === "number" || /^\d+$/.test(String(node))) return { port: Number(node) };
  if (typeof node !== "string" || node.startsWith("/")) return undefined;
  return ofUrl(node.includes("://") ? node : `redis://${node}`);
}

function readNodeRedisCluster(options: Options): Reading {
  const { rootNodes, defaults, nodeAddressMap, commandOptions } = options;
  const ofAll = (defaults ?? {}) as Options;
  if (isGiven(ofAll.url)) return { obstacle: "defaults.url" };
  return join({
    name: "rootNodes",
    nodes: Array.isArray(rootNodes) ? rootNodes.map(ofRootNode) : [],
    read: ({ socket, ...node }) => {
      const both = { ...(ofAll.socket as Options | undefined), ...(socket as Options | undefined) };
      return readNodeRedis({ ...ofAll, ...node, socket: both, commandOptions });
    },
    natMap: ["nodeAddressMap", nodeAddressMap],
    defaultHost: "localhost",
  });
}

function ofRootNode(node: unknown): Options | undefined {
  if (typeof node !== "object" || node === null) return undefined;
  const { url, socket, ...rest } = node as Options;
  if (!isGiven(url)) return { ...rest, socket };
  if (typeof url !== "string") return undefined;
  const parts = ofUrl(url);
  if (parts === undefined) return undefined;
  const { host, port, ...login } = parts;
  const tls = isTlsUrl(url);
  const address = port === undefined ? { host, tls } : { host, port, tls };
  return { ...rest, ...login, socket: { ...(socket as Options | undefined), ...address } };
}

/** Host, port and login of a URL; `undefined` if it holds anything else that would have to be carried over. */
function ofUrl(text: string): Options | undefined {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return undefined;
  }
  const { hostname, port, username, password, pathname, search } = url;
  if (!["", "/", "/0"].includes(pathname) || search !== "") return undefined;
  const parts: Options = { host: hostname.replace(/^\[|\]$/g, "") };
  if (port !== "") parts.port = Number(port);
  if (username !== "") parts.username = decodeURIComponent(username);
  if (password !== "") parts.password = decodeURIComponent(password);
  return parts;
}

type Parts = {
  /** What the driver calls the nodes. */
  name: string;
  /** The options of each node; `undefined` for one that cannot be read. */
  nodes: readonly (Options | undefined)[];
  /** Reads the settings of a node together with those of all nodes. */
  read: (node: Options) => Reading;
  natMap: readonly [name: string, value: unknown];
  defaultHost: string;
};

/** The settings of a cluster from those of its nodes. */
function join({ name, nodes, read, natMap: [mapName, map], defaultHost }: Parts): Reading {
  const common = read({});
  if ("obstacle" in common) return common;
  const settings = withoutAddress(common.settings);
  if (settings.path !== undefined || settings.sentinels !== undefined) {
    return { obstacle: settings.path === undefined ? "sentinels" : "path" };
  }
  if ((settings.db ?? 0) > 0) return { obstacle: "db" };
  settings.nodes = [];
  for (const node of nodes) {
    const reading = node === undefined ? { obstacle: name } : read(node);
    if ("obstacle" in reading) return reading;
    // What is particular to one node cannot apply to those that the cluster tells of.
    const beside = { ...withoutAddress(reading.settings), nodes: settings.nodes };
    if (!isDeepStrictEqual(beside, settings)) {
      return { obstacle: `${name} that differ in more than host and port` };
    }
    settings.nodes.push(addressOf(reading.settings, defaultHost));
  }
  if (settings.nodes.length === 0) return { obstacle: name };
  if (!isGiven(map)) return { settings };
  const natMap = readNatMap(map);
  if (natMap === undefined) return { obstacle: mapName };
  return { settings: { ...settings, natMap } };
}

function withoutAddress({ host: _host, port: _port, ...settings }: RedisSettings): RedisSettings {
  return settings;
}

function addressOf({ host, port }: RedisSettings, defaultHost: string): RedisNode {
  const node: RedisNode = { host: host ?? defaultHost };
  if (port !== undefined) node.port = port;
  return node;
}

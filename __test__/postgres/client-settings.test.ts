/** What is read from clients of postgres.js and pg. No client connects. */

import { createRequire } from "node:module";
import { Socket } from "node:net";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, type ClientConfig, Pool, type PoolConfig } from "pg";
import postgres from "postgres";
import { beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { createPostgresBackend } from "syncguard/postgres";
import { thrownLockError } from "../support/errors";
import { temporaryFolder } from "../support/temp";

type Target = { connection: Record<string, unknown>; password?: () => unknown };
type Reading = Target | { obstacle: string };

const { readClient } = createRequire(import.meta.url)("../../dist/postgres/client-settings.js") as {
  readClient: (client: object) => Reading;
};

beforeEach(() => {
  for (const name of Object.keys(process.env)) {
    if (name.startsWith("PG")) vi.stubEnv(name, undefined);
  }
  vi.stubEnv("PGPASSFILE", "/nowhere");
  vi.stubEnv("NODE_EXTRA_CA_CERTS", undefined);
});

function settings(reading: Reading): Record<string, unknown> {
  if ("obstacle" in reading) throw new Error(`an obstacle: ${reading.obstacle}`);
  return reading.connection;
}

const TCP = { hosts: [{ host: "h", port: 5432 }], user: "u", database: "d" };
const VERIFIED = { mode: "verify-full" };

type Options = postgres.Options<Record<string, postgres.PostgresType>> & Record<string, unknown>;

describe("postgres.js", () => {
  const DEFAULTS = {
    environment: false,
    ...TCP,
    tls: { mode: "disable" },
    poolSize: 10,
    connectTimeoutMs: 30_000,
  };

  function read(options: Options, url?: string): Reading {
    const all = { host: "h", user: "u", database: "d", ...options } as Options;
    return readClient(url === undefined ? postgres(all) : postgres(url, options));
  }

  const CARRIED: readonly (readonly [Options, object])[] = [
    [{}, {}],
    [{ port: 1, max: 3, connect_timeout: 7 }, { hosts: [{ host: "h", port: 1 }], poolSize: 3, connectTimeoutMs: 7000 }], // prettier-ignore
    [{ host: "a:1,b" }, { hosts: [{ host: "a", port: 1 }, { host: "b", port: 5432 }] }], // prettier-ignore
    [{ host: ["a", "b"], port: [1, 2] } as never, { hosts: [{ host: "a", port: 1 }, { host: "b", port: 2 }] }], // prettier-ignore
    [{ host: "/run/pg", port: 6000 }, { hosts: [{ host: "/run/pg", port: 6000 }] }],
    [{ path: "/run/pg/.s.PGSQL.7" }, { hosts: [{ host: "/run/pg", port: 7 }] }],
    [{ username: "u", password: "p:w@" }, { password: "p:w@" }],
    [{ ssl: true }, { tls: VERIFIED }],
    [{ ssl: "require" }, { tls: { mode: "require" } }],
    [{ ssl: "allow" }, { tls: { mode: "require" } }],
    [{ ssl: "prefer" }, { tls: { mode: "prefer" } }],
    [{ ssl: "verify-full" }, { tls: VERIFIED }],
    [
      { ssl: { ca: "CA", cert: Buffer.from("C"), key: "K", servername: "s" } },
      { tls: { ...VERIFIED, ca: "CA", cert: "C", key: "K", servername: "s" } },
    ],
    [{ ssl: { ca: ["A", "B"], rejectUnauthorized: false } }, { tls: { mode: "require" } }],
    [{ prepare: false }, { prepare: false }],
    [{ target_session_attrs: "read-write" }, { targetSessionAttrs: "read-write" }],
    [
      {
        connection: {
          application_name: "app",
          options: "-c a=b",
          client_encoding: "UTF8",
          search_path: "x",
          statement_timeout: 9,
        },
      },
      {
        applicationName: "app",
        options: "-c a=b",
        parameters: [
          { name: "search_path", value: "x" },
          { name: "statement_timeout", value: "9" },
        ],
      },
    ],
  ];
  test.each(CARRIED)("carries over %j", (options, expected) => {
    expect(settings(read(options))).toEqual({ ...DEFAULTS, ...expected });
  });

  test("a URL and the variables count as postgres.js reads them", () => {
    vi.stubEnv("PGPASSWORD", "from the environment");
    vi.stubEnv("PGOPTIONS", "-c not=read");
    expect(settings(read({}, "postgres://u:p%40@h:1,b:2/d?sslmode=require"))).toEqual({
      ...DEFAULTS,
      hosts: [
        { host: "h", port: 1 },
        { host: "b", port: 2 },
      ],
      password: "p@",
      tls: { mode: "require" },
    });
    expect(settings(read({}, "postgres://u@h/d"))).toMatchObject({
      password: "from the environment",
    });
  });

  test("a function gives the password at each connection", () => {
    const give = vi.fn(() => "token");
    const reading = read({ password: give });
    expect(settings(reading)).toEqual(DEFAULTS);
    expect((reading as Target).password?.()).toBe("token");
    expect(give).toHaveBeenCalledOnce();
  });

  test.each<[Options, string]>([
    [{ socket: () => new Socket() } as Options, "the socket"],
    [{ path: "/cloudsql/project:region:instance" }, "the hosts"],
    [{ ssl: { checkServerIdentity: () => undefined } }, "ssl.checkServerIdentity"],
    [{ ssl: { key: "K", passphrase: "secret" } }, "ssl.passphrase"],
    [{ ssl: { pfx: Buffer.from("secret") } }, "ssl.pfx"],
    [{ sslnegotiation: "direct", ssl: true } as Options, "sslnegotiation"],
    [{ target_session_attrs: "prefer-standby" }, "target_session_attrs"],
    [{ connection: { replication: "database" } }, "the connection parameters"],
  ])("leaves to the client: %o", (options, obstacle) => {
    expect(read(options)).toEqual({ obstacle });
  });

  test("leaves to the client what has no options: a transaction, a wrapper", () => {
    for (const client of [{ unsafe: () => [] }, Object.assign(() => [], { unsafe: () => [] })]) {
      expect(readClient(client)).toEqual({ obstacle: "the settings, which cannot be read," });
    }
  });
});

describe("pg", () => {
  const DEFAULTS = { environment: false, ...TCP, tls: { mode: "disable" } };

  const CARRIED: readonly (readonly [ClientConfig & Record<string, unknown>, object])[] = [
    [{}, {}],
    [
      { port: 1, password: "p" },
      { hosts: [{ host: "h", port: 1 }], password: "p" },
    ],
    [{ host: "/run/pg", port: 6000 }, { hosts: [{ host: "/run/pg", port: 6000 }] }],
    [{ ssl: true }, { tls: VERIFIED }],
    [{ ssl: { ca: "CA", servername: "s" } }, { tls: { ...VERIFIED, ca: "CA" } }],
    [
      { host: "127.0.0.1", ssl: { ca: "CA", cert: "C", key: "K", servername: "s" } },
      {
        hosts: [{ host: "127.0.0.1", port: 5432 }],
        tls: { ...VERIFIED, ca: "CA", cert: "C", key: "K", servername: "s" },
      },
    ],
    [{ ssl: { ca: "CA", rejectUnauthorized: false } }, { tls: { mode: "require" } }],
    [{ connectionTimeoutMillis: 700 }, { connectTimeoutMs: 700 }],
    [
      { application_name: "app", options: "-c a=b" },
      { applicationName: "app", options: "-c a=b" },
    ],
    [{ fallback_application_name: "app" }, { applicationName: "app" }],
    [
      { statement_timeout: 9, lock_timeout: 8 },
      {
        parameters: [
          { name: "statement_timeout", value: "9" },
          { name: "lock_timeout", value: "8" },
        ],
      },
    ],
    [
      { connectionString: "postgres://x:p%40@y:1/z?sslmode=no-verify&application_name=app" },
      {
        hosts: [{ host: "y", port: 1 }],
        user: "x",
        password: "p@",
        database: "z",
        tls: { mode: "require" },
        applicationName: "app",
      },
    ],
    [{ connectionString: "postgres://u@h/d?sslmode=verify-full" }, { tls: VERIFIED }],
  ];
  const BASE = { host: "h", user: "u", database: "d" };

  test.each(CARRIED)("carries over %j, from a client and from a pool", (config, expected) => {
    // pg hides keys in the object it is given.
    const fresh = (): PoolConfig => structuredClone({ ...BASE, ...config });
    const all = { ...DEFAULTS, ...expected };
    expect(settings(readClient(new Client(fresh())))).toEqual(all);
    expect(settings(readClient(new Pool(fresh())))).toEqual({ ...all, poolSize: 10 });
  });

  test("a pool says how many connections there may be", () => {
    expect(settings(readClient(new Pool({ ...BASE, max: 3 })))).toMatchObject({ poolSize: 3 });
  });

  test("a limit for queries becomes that for operations", () => {
    const reading = readClient(new Pool({ ...BASE, query_timeout: 800 }));
    expect(reading).toMatchObject({ operationTimeoutMs: 800 });
  });

  test("variables count as pg reads them", () => {
    vi.stubEnv("PGHOST", "e");
    vi.stubEnv("PGPORT", "7");
    vi.stubEnv("PGUSER", "somebody");
    vi.stubEnv("PGSSLMODE", "require");
    vi.stubEnv("PGSSLROOTCERT", "/not/read");
    expect(settings(readClient(new Pool()))).toEqual({
      environment: false,
      hosts: [{ host: "e", port: 7 }],
      user: "somebody",
      database: "somebody",
      tls: VERIFIED,
      poolSize: 10,
    });
  });

  test("a function gives the password at each connection", () => {
    const give = vi.fn(() => "token");
    const reading = readClient(new Pool({ ...BASE, password: give }));
    expect((reading as Target).password?.()).toBe("token");
    expect(give).toHaveBeenCalledOnce();
    expect(settings(reading).password).toBeUndefined();
  });

  test.each<[PoolConfig & Record<string, unknown>, string]>([
    [{ stream: () => new Socket() }, "stream"],
    [{ Client: class extends Client {} }, "Client"],
    [{ verify: () => undefined }, "verify"],
    [{ onConnect: () => undefined }, "onConnect"],
    [{ ssl: { checkServerIdentity: () => undefined } }, "ssl.checkServerIdentity"],
    [{ ssl: { key: "K", passphrase: "secret" } }, "ssl.passphrase"],
    [{ ssl: true, sslnegotiation: "direct" }, "sslnegotiation"],
    [{ replication: "database" }, "replication"],
  ])("leaves to the pool: %o", (config, obstacle) => {
    expect(readClient(new Pool({ ...BASE, ...config }))).toEqual({ obstacle });
  });

  test("leaves to the client what it speaks through, if that is not pg's", () => {
    const connector = new Socket();
    connector.connect = () => connector;
    for (const stream of [connector, () => connector]) {
      const client = new Client({ ...BASE, stream } as ClientConfig);
      expect(readClient(client)).toEqual({ obstacle: "the stream" });
    }
  });

  test("leaves to the pool what others do to its sessions", () => {
    const pool = new Pool(BASE);
    pool.on("connect", () => undefined);
    expect(readClient(pool)).toEqual({ obstacle: "what listens to connect" });
  });

  test("leaves to the client what somebody replaced", () => {
    const pool = new Pool(BASE);
    vi.spyOn(pool, "query");
    expect(readClient(pool)).toEqual({ obstacle: "query, which is not its class's," });
    class Sub extends Client {
      override query = vi.fn() as never;
    }
    expect(readClient(new Sub(BASE))).toHaveProperty("obstacle");
    const spy = vi.spyOn(Client.prototype, "query");
    expect(readClient(new Client(BASE))).toEqual({
      obstacle: "query, which is not its class's,",
    });
    spy.mockRestore();
    expect(readClient(new Client(BASE))).not.toHaveProperty("obstacle");
  });

  test("leaves to the client a password that pg finds in a file", () => {
    const folder = temporaryFolder();
    onTestFinished(folder.remove);
    const file = join(folder.path, "pgpass");
    writeFileSync(file, "");
    vi.stubEnv("PGPASSFILE", file);
    expect(readClient(new Pool(BASE))).toEqual({ obstacle: "the password file" });
    expect(settings(readClient(new Pool({ ...BASE, password: "p" }))).password).toBe("p");
  });

  test.each(["", undefined])("finds that file where pg does, with HOME=%j", (home) => {
    const folder = temporaryFolder();
    onTestFinished(folder.remove);
    const before = process.cwd();
    onTestFinished(() => process.chdir(before));
    process.chdir(folder.path);
    vi.stubEnv("PGPASSFILE", undefined);
    vi.stubEnv("HOME", home);
    expect(readClient(new Pool(BASE))).not.toHaveProperty("obstacle");
    writeFileSync(".pgpass", "");
    expect(readClient(new Pool(BASE))).toEqual({ obstacle: "the password file" });
  });
});

test("NODE_TLS_REJECT_UNAUTHORIZED=0 counts where ssl leaves it open", () => {
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
  vi.spyOn(process, "emitWarning").mockReturnValue();
  const mode = (ssl: PoolConfig["ssl"]): unknown => {
    const { tls } = settings(readClient(new Pool({ host: "h", user: "u", ssl })));
    return (tls as { mode?: string }).mode;
  };
  expect(mode(true)).toBe("require");
  expect(mode({ ca: "CA" })).toBe("require");
  expect(mode({ rejectUnauthorized: true })).toBe("verify-full");
  expect(mode(false)).toBe("disable");
});

test("a transport that cannot be had is refused", () => {
  const pool = new Pool({ host: "h", user: "u", stream: () => new Socket() });
  expect(thrownLockError(() => createPostgresBackend(pool, { transport: "native" })).message).toBe(
    'transport "native" cannot take over stream of the client',
  );
  for (const at of ["postgres://h", { host: "h" }]) {
    const error = thrownLockError(() => createPostgresBackend(at, { transport: "client" }));
    expect(error.message).toBe('transport "client" needs a client');
  }
});

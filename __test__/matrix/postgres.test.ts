import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { LockError } from "syncguard";
import { createPostgresBackend, setupSchema } from "syncguard/postgres";
import { lockError } from "../support/errors";
import { newKey } from "../support/suite";
import { until } from "../support/until";
import { operations, type Stage } from "./operations";
import {
  checkVersion,
  openPostgres,
  postgresClients,
  postgresServers,
  type PostgresStage,
} from "./postgres";

// All of them mostly wait.
vi.setConfig({ maxConcurrency: 64 });

describe.each(postgresServers.map((row) => [`${row.name} ${row.version}`, row] as const))(
  "%s",
  (_, row) => {
    const isSingle = row.connections === 1;
    let server: PostgresStage;
    beforeAll(async () => {
      server = await row.start();
    });
    afterAll(async () => {
      await server.stop();
    });

    test("is that version", async () => {
      await checkVersion(server, row);
    });

    const clients = postgresClients.flatMap((client) =>
      client.ways
        .filter((way) => way === "client" || !isSingle)
        .map((way) => [`${client.name} ${client.version}, ${way}`, client, way] as const),
    );
    // With one connection, whoever has it for a transaction keeps all others waiting.
    const options = { concurrent: !isSingle };
    describe.each(clients)("%s", options, (_, client, way) => {
      let own: PostgresStage | undefined;
      let stage: Stage;
      beforeAll(async () => {
        if (isSingle) own = await row.start();
        stage = await openPostgres(own ?? server, row, client, way);
      });
      afterAll(async () => {
        await stage.close();
        await own?.stop();
      });
      test.each(Object.entries(operations))("%s", async (_, operation) => {
        await operation(stage);
      });
    });

    if (isSingle) {
      test("refuses connections of our own", async () => {
        const backend = createPostgresBackend(server.url);
        for (const refused of [
          () => backend.acquire({ key: newKey(), ttlMs: 5_000 }),
          () => setupSchema(server.url),
        ]) {
          // The connection before may not be closed yet, and there is one at a time.
          let error: LockError | undefined;
          await until(async () => (error = await lockError(refused())).code === "InvalidArgument");
          expect(error?.message).toContain('transport: "client"');
        }
        await backend.close();
      });
    }
  },
);

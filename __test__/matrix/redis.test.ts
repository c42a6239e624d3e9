import { afterAll, beforeAll, describe, test, vi } from "vitest";
import { operations, type Stage } from "./operations";
import {
  checkVersion,
  openRedis,
  redisClients,
  redisServers,
  type RedisStage,
  startStage,
} from "./redis";

// All of them mostly wait.
vi.setConfig({ maxConcurrency: 64 });

describe.each(redisServers.map((row) => [`${row.name} ${row.version}`, row] as const))(
  "%s",
  (_, row) => {
    let server: RedisStage;
    beforeAll(async () => {
      server = await startStage(row);
    });
    afterAll(async () => {
      await Promise.all([server.sentinel.stop(), server.server.stop()]);
    });

    test("is that version", async () => {
      await checkVersion(server, row);
    });

    const clients = redisClients.flatMap((client) =>
      client.ways.map((way) => [`${client.name} ${client.version}, ${way}`, client, way] as const),
    );
    describe.concurrent.each(clients)("%s", (_, client, way) => {
      let stage: Stage;
      beforeAll(async () => {
        stage = await openRedis(server, client, way);
      });
      afterAll(async () => {
        await stage.close();
      });
      test.each(Object.entries(operations))("%s", async (_, operation) => {
        await operation(stage);
      });
    });
  },
);

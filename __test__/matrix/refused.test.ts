import { expect, test } from "vitest";
import { setupSchema } from "syncguard/postgres";
import { lockError } from "../support/errors";

test.each([
  ["CockroachDB", "CockroachDB CCL v24.1.2 (x86_64-pc-linux-gnu, built 2024/07/01, go1.22.4)"],
  ["YugabyteDB", "PostgreSQL 11.2-YB-2.21.1.0-b0 on x86_64-pc-linux-gnu, 64-bit"],
])("setupSchema() through a client refuses %s and makes nothing", async (name, version) => {
  const asked: string[] = [];
  const client = {
    query: async (text: string) => {
      asked.push(text);
      return { rows: [{ version }] };
    },
  };
  const { code, message } = await lockError(setupSchema(client));
  expect(code).toBe("InvalidArgument");
  expect(message).toContain(`the server is ${name}`);
  expect(asked).toEqual(["SELECT version() AS version"]);
});

// Transactions and savepoints of ORMs, as their users begin them, each behind the same few functions:
//
// - `transaction(work)` and `nested(tx, work)` begin one and give it to `work`, and settle when it has ended;
// - `run(tx, query)` runs a statement that has its parameters as PostgreSQL has them: `guardQuery()` and `doneQuery()` give such;
// - `client(tx)`, if the ORM has a way to it, is the transaction of postgres.js or the client of pg that is behind it.
//
// Each has a pool of one session, so that a transaction meets what the one before has left there.

import { execFileSync } from "node:child_process";
import { existsSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import pg from "pg";
import postgres from "postgres";
import { clientFolder } from "../../scripts/lib/matrix.mjs";
import { root } from "../../scripts/lib/paths.mjs";

const EXAMPLES = join(root, "examples");
const load = createRequire(join(EXAMPLES, "package.json"));

/** What each ORM is opened with: a URL, and a folder for what it generates. */
export const orms = {
  "Drizzle on pg": ({ url }) => {
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    return ofDrizzle(load("drizzle-orm/node-postgres").drizzle({ client: pool }), pool);
  },
  "Drizzle on postgres.js": ({ url }) => {
    const sql = postgres(url, { max: 1, onnotice: () => {} });
    return ofDrizzle(load("drizzle-orm/postgres-js").drizzle({ client: sql }), sql);
  },

  Knex: ({ url }) => {
    const db = load("knex")({ client: "pg", connection: url, pool: { min: 0, max: 1 } });
    return {
      transaction: (work) => db.transaction(work),
      nested: (trx, work) => trx.transaction(work),
      run: (trx, { text, values }) => {
        const { parts, given } = split(text, values);
        return trx.raw(parts.map((part) => part.replaceAll("?", "\\?")).join("?"), given);
      },
      client: (trx) => trx.client.acquireConnection(),
      end: () => db.destroy(),
    };
  },

  Kysely: ({ url }) => {
    const { CompiledQuery, Kysely, PostgresDialect } = load("kysely");
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    const db = new Kysely({ dialect: new PostgresDialect({ pool }) });
    // It has savepoints in controlled transactions alone, and no function that ends them.
    const within = async (trx, work, commit, rollback) => {
      try {
        const value = await work(trx);
        await commit(trx).execute();
        return value;
      } catch (error) {
        await rollback(trx).execute();
        throw error;
      }
    };
    return {
      transaction: async (work) =>
        await within(
          await db.startTransaction().execute(),
          work,
          (trx) => trx.commit(),
          (trx) => trx.rollback(),
        ),
      nested: async (trx, work) =>
        await within(
          await trx.savepoint("one").execute(),
          work,
          (sp) => sp.releaseSavepoint("one"),
          (sp) => sp.rollbackToSavepoint("one"),
        ),
      run: (trx, { text, values }) => trx.executeQuery(CompiledQuery.raw(text, values)),
      end: () => db.destroy(),
    };
  },

  Prisma: ({ url, folder }) => {
    const { PrismaPg } = load("@prisma/adapter-pg");
    const { PrismaClient } = prismaClient(folder);
    const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url, max: 1 }) });
    return {
      transaction: (work) => prisma.$transaction(work),
      nested: (tx, work) => tx.$transaction(work),
      run: (tx, { text, values }) => tx.$queryRawUnsafe(text, ...values),
      end: () => prisma.$disconnect(),
    };
  },

  Sequelize: ({ url }) => {
    const { Sequelize } = load(clientFolder("sequelize"));
    const options = { dialect: "postgres", dialectModule: pg, logging: false, pool: { max: 1 } };
    const sequelize = new Sequelize(url, options);
    return {
      transaction: (work) => sequelize.transaction(work),
      nested: (transaction, work) => sequelize.transaction({ transaction }, work),
      run: (transaction, { text, values }) => sequelize.query(text, { bind: values, transaction }),
      client: (transaction) => transaction.connection,
      end: () => sequelize.close(),
    };
  },

  TypeORM: async ({ url }) => {
    const { DataSource } = load("typeorm");
    const source = new DataSource({ type: "postgres", url, poolSize: 1 });
    await source.initialize();
    return {
      transaction: (work) => source.transaction(work),
      nested: (manager, work) => manager.transaction(work),
      run: (manager, { text, values }) => manager.query(text, values),
      client: (manager) => manager.queryRunner.connect(),
      end: () => source.destroy(),
    };
  },
};

function ofDrizzle(db, driver) {
  const { sql } = load("drizzle-orm");
  return {
    transaction: (work) => db.transaction(work),
    nested: (tx, work) => tx.transaction(work),
    run: (tx, { text, values }) => {
      const { parts, given } = split(text, values);
      const [first, ...others] = parts.map((part) => sql.raw(part));
      return tx.execute(sql.join([first, ...others.map((part, at) => sql`${given[at]}${part}`)]));
    },
    client: (tx) => tx.session.client,
    end: () => driver.end(),
  };
}

/** A statement without its parameters, and what they stand for, each as often as it is named. */
function split(text, values) {
  const given = [...text.matchAll(/\$(\d+)/g)].map(([, number]) => values[number - 1]);
  return { parts: text.split(/\$\d+/), given };
}

/** What `prisma generate` makes, in a folder of its own, where it is made once. */
function prismaClient(folder) {
  const output = join(folder, "client");
  if (existsSync(output)) return load(output);
  const schema = join(folder, "schema.prisma");
  const generator = `generator client {\n  provider = "prisma-client-js"\n  output = "${output}"\n}`;
  const database = 'datasource db {\n  provider = "postgresql"\n}';
  // It makes nothing for a schema without a model.
  writeFileSync(schema, `${generator}\n${database}\nmodel Sum {\n  id String @id\n}\n`);
  symlinkSync(join(EXAMPLES, "node_modules"), join(folder, "node_modules"));
  const program = join(EXAMPLES, "node_modules/prisma/build/index.js");
  // Prisma would download the engine for migrations, which this command does not call.
  const env = { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" };
  const options = { cwd: EXAMPLES, env: { ...process.env, ...env }, stdio: "pipe" };
  execFileSync(process.execPath, [program, "generate", "--no-hints", "--schema", schema], options);
  return load(output);
}

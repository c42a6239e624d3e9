// Who takes part on PostgreSQL: this package, and the advisory locks that the server has.

import pg from "pg";
import { createPostgresBackend } from "syncguard/postgres";
import { USER } from "../postgres/server.mjs";
import { ours } from "./ours.mjs";
import { under } from "./polling.mjs";

/** As many as pools have if nobody says anything. */
const CONNECTIONS = 10;

/** The server's address; its tables are there. */
export const urlOf = (port) => `postgres://${USER}@127.0.0.1:${port}/postgres?sslmode=disable`;

export const open = {
  syncguard: (port) => ours(createPostgresBackend(urlOf(port), { poolSize: CONNECTIONS })),

  advisory(port) {
    const pool = new pg.Pool({ connectionString: urlOf(port), max: CONNECTIONS });
    // A lock belongs to its connection: nobody else may use that meanwhile.
    const take = async (statement, key) => {
      const client = await pool.connect();
      const { rows } = await client.query({
        name: statement,
        text: `SELECT ${statement}(hashtextextended($1, 0)) AS taken`,
        values: [key],
      });
      if (rows[0].taken === false) {
        client.release();
        return undefined;
      }
      return async () => {
        const { rows } = await client.query({
          name: "unlock",
          text: "SELECT pg_advisory_unlock(hashtextextended($1, 0)) AS freed",
          values: [key],
        });
        client.release();
        if (!rows[0].freed) throw new Error("the lock was not released");
      };
    };
    const takeFree = async (key) => {
      const free = await take("pg_try_advisory_lock", key);
      if (free === undefined) throw new Error("nobody else can hold this lock");
      return free;
    };
    return {
      pair: async (index) => (await takeFree(`key:${index}`))(),
      attempt: async (key) => (await take("pg_try_advisory_lock", key)) !== undefined,
      take: takeFree,
      within: async (key, work) => under(await take("pg_advisory_lock", key), work),
      close: () => pool.end(),
    };
  },
};

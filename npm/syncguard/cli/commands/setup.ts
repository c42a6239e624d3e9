import { addon, callAddon } from "../../native/addon.js";
import { setupSchema } from "../../postgres/backend.js";
import type { Command } from "../command.js";
import { Exit } from "../exit.js";
import { findStore } from "../store.js";
import { tableNames } from "../stores.js";

export const setup: Command = {
  name: "setup",
  summary: "create the tables in PostgreSQL",
  operands: [],
  description:
    "Creates the tables and indexes that are missing; running it again, or in many processes at once, does no harm. It needs the\n" +
    "right to create tables, and no rights if nothing is missing. The other stores need no set-up.",
  options: {
    print: {
      type: "boolean",
      help: "print the SQL and do not run it: for migrations of your own; needs no server",
    },
  },
  examples: [
    ["syncguard setup --url postgres://admin@db.internal/app", "as a role that may create tables"],
    ["syncguard setup --print > migration.sql", "for whoever may create tables"],
    ["syncguard setup --table-name app_locks --fence-table-name app_fences", "under other names"],
  ],
  exits: [],
  run: async ({ values, out }) => {
    const names = tableNames(values);
    if (values.print === true) {
      const sql = callAddon(() => addon().postgresSchemaSql(names.tableName, names.fenceTableName));
      out.result({ sql }, () => sql.trimEnd());
      return Exit.OK;
    }
    const { kind, url } = findStore(values, out);
    if (kind !== "postgres") {
      out.result({ store: kind, ready: true }, () => "this store needs no set-up");
      return Exit.OK;
    }
    await setupSchema(url, names);
    out.result({ store: kind, ready: true }, () => "the tables are ready");
    return Exit.OK;
  },
};

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createDashboard } from "../../dashboard/dashboard.js";
import type { Command } from "../command.js";
import { CliError, Exit } from "../exit.js";
import { withBackend } from "../store.js";
import { readCount } from "../values.js";

const DEFAULT_PORT = 7788;

export const dashboard: Command = {
  name: "dashboard",
  summary: "show the locks on a page in the browser, live",
  operands: [],
  description:
    "Serves a page on 127.0.0.1 that shows which locks are held, by whom and until when, and what becomes of them. It changes\n" +
    "nothing. To reach it from elsewhere, or to release locks by it, mount it in a service of yours: docs/dashboard.md.",
  options: {
    port: {
      type: "string",
      value: "N",
      help: `where to listen; default ${DEFAULT_PORT}; 0 takes one that is free`,
    },
  },
  examples: [["syncguard dashboard", "then open the address that it prints"]],
  exits: [["0", "ended by Ctrl-C or SIGTERM"]],
  run: async ({ values, out }) => {
    const port = readCount(values, "port", 65_535, 0) ?? DEFAULT_PORT;
    return await withBackend(values, out, async (backend) => {
      const page = createDashboard(backend);
      const server = createServer(page.node).listen(port, "127.0.0.1");
      try {
        await once(server, "listening");
      } catch (error) {
        const why = `cannot listen on port ${port}: ${(error as NodeJS.ErrnoException).code}`;
        const hint = "--port names another one; with 0, one that is free";
        throw new CliError("Listen", Exit.UNAVAILABLE, why, hint);
      }
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
      out.result({ url }, () => `the locks are shown at ${url} until Ctrl-C`);
      await new Promise<void>((resolve) => {
        process.once("SIGINT", resolve).once("SIGTERM", resolve);
      });
      page.close();
      server.close();
      server.closeAllConnections();
      return Exit.OK;
    });
  },
};

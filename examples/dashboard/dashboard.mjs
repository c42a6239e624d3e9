// The dashboard of the locks that this service uses. Mount it in any of the ways beside this file.

import { createDashboard } from "syncguard/dashboard";
import { createSqliteBackend } from "syncguard/sqlite";

const { SYNCGUARD_URL = "sqlite://./locks.db" } = process.env;

export const backend = createSqliteBackend(SYNCGUARD_URL.replace("sqlite://", ""));

export const dashboard = createDashboard(backend, {
  allowChanges: true,
  authorize: (request, action) => {
    // Stands for your session: the proxy before this service knows who it is, and lets nobody set these headers.
    const user = request.headers.get("x-user");
    const mayChange = request.headers.get("x-role") === "on-call";
    return user !== null && (action === "read" || mayChange) && user;
  },
});

process.once("SIGTERM", () => dashboard.close());

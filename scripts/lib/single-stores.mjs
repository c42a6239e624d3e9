// Each store by itself, and none: what is unused or missing there, a build of all does not show.

import { command } from "./steps.mjs";

export const singleStores = ["", "redis", "postgres", "firestore", "sqlite"].map((store) =>
  command(
    `cargo clippy, ${store || "no store"} alone`,
    ...["cargo", "clippy", "-p", "syncguard", "--no-default-features", "--features", store],
    ...["--locked", "--", "-D", "warnings"],
  ),
);

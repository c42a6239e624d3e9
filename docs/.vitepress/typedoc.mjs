/** What TypeDoc is told of this package beside typedoc.json. */

import { Converter, ReflectionKind } from "typedoc";

/** Called by TypeDoc. */
export function load(app) {
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    // As programs import them: `syncguard/redis` in place of the file's `redis`.
    for (const entry of project.children ?? [])
      entry.name = entry.name === "index" ? "syncguard" : `syncguard/${entry.name}`;
    // Properties stand in tables, whose cells have no room for blocks of code.
    for (const property of project.getReflectionsByKind(ReflectionKind.Property))
      property.comment?.removeTags("@example");
  });
}

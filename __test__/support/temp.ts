import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A new folder, and how to remove it. */
export function temporaryFolder(place = tmpdir()): { path: string; remove: () => void } {
  const path = mkdtempSync(join(place, "syncguard-test-"));
  return {
    path,
    remove: () => {
      rmSync(path, { recursive: true, force: true });
    },
  };
}

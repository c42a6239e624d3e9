// Stands for a database with a table of migrations.

import { readFile, rename, writeFile } from "node:fs/promises";

export function openDatabase(file) {
  const read = async () => {
    try {
      return JSON.parse(await readFile(file, "utf8"));
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
      return { applied: [], fence: "" };
    }
  };
  return {
    read,
    /** Notes a migration as done. Refuses a process whose lock somebody else has had since. */
    async record(name, fence) {
      const { applied, fence: last } = await read();
      if (fence < last) throw new Error(`${name}: a later holder has written already`);
      await writeFile(`${file}.new`, JSON.stringify({ applied: [...applied, name], fence }));
      await rename(`${file}.new`, file);
    },
  };
}

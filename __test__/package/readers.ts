/** A project of somebody who reads our examples, and the compiler that tries them there. */

import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Block } from "./documents.js";
import { type Ended, type Installed, installPackages, root } from "./installed.js";

/** Packages that examples import beside ours, as their readers have them, by the folder that they are installed in. */
const CLIENTS: Readonly<Record<string, readonly string[]>> = {
  ".": ["@google-cloud/firestore", "@types/pg", "ioredis", "pg", "postgres", "redis"],
  "bench/alternatives": ["redis-semaphore", "redlock", "redlock-universal"],
  examples: [
    ...["@aws-sdk/client-dynamodb", "@aws-sdk/lib-dynamodb", "async-lock", "bullmq", "croner"],
    ...["drizzle-orm", "knex", "kysely", "node-cron", "typeorm"],
    // The last is what `prisma generate` makes.
    ...["@prisma/adapter-pg", "@prisma/client", ".prisma"],
  ],
};

/** An empty project with the packed packages, and with the clients that examples import. */
export async function installForReaders(): Promise<Installed> {
  const installed = await installPackages();
  for (const [folder, clients] of Object.entries(CLIENTS)) {
    for (const client of clients) {
      const link = join(installed.folder, "node_modules", client);
      mkdirSync(dirname(link), { recursive: true });
      symlinkSync(join(root, folder, "node_modules", client), link, "dir");
    }
  }
  return installed;
}

/** Writes a block into the project: as a module, whatever it imports, with what it needs around it. */
export function writeBlock(
  { folder }: Installed,
  file: string,
  { given, code, then }: Block,
): void {
  writeFileSync(join(folder, file), `export {};\n${given}${code}${then}`);
}

/** Compiles files of the project as strict ES modules for Node.js. */
export function compile({ tsc }: Installed, files: string[]): Promise<Ended> {
  return tsc(
    ...files,
    ...["--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"],
    ...["--lib", "es2022,esnext.disposable", "--types", "node"],
    ...["--typeRoots", join(root, "node_modules/@types"), "--preserveSymlinks"],
  );
}

/** What the compiler said of one file. */
export function faultsIn({ stdout }: Ended, file: string): string[] {
  return stdout.split("\n").filter((line) => line.startsWith(`${file}(`));
}

// npm run check: format, lints, types, documentation, exports, licences, packages.
// Every step runs, whatever became of the others; the exit code says whether all passed. What passed on this machine, and reads nothing
// that has changed since, is not run again.

import { checkAddonTypes } from "./lib/addon-types.mjs";
import {
  buildAddon,
  buildTypeScript,
  install,
  installProjects,
  needCompilers,
} from "./lib/build.mjs";
import { allNpmLicences, cargoDeny, npmAudit } from "./lib/licences.mjs";
import { checkCitations } from "./lib/citations.mjs";
import { checkRustCircles } from "./lib/circles.mjs";
import { checkRooms } from "./lib/rooms.mjs";
import { checkRustRooms } from "./lib/rust-rooms.mjs";
import { checkExports } from "./lib/exports.mjs";
import { checkGlossary } from "./lib/glossary.mjs";
import { EVERYTHING, RUST, SCRIPTS, unlessGreen } from "./lib/green.mjs";
import { checkTrackedFiles } from "./lib/tracked.mjs";
import { checkTypeNames } from "./lib/type-names.mjs";
import { checkWords } from "./lib/words.mjs";
import { checkPackage } from "./lib/packed.mjs";
import { bin } from "./lib/paths.mjs";
import { main } from "./lib/run.mjs";
import { withSources } from "./lib/sources.mjs";
import { command, quietly, runSteps } from "./lib/steps.mjs";

// The build of the addon takes longest by far, and one core: what does without it goes beside it.
const beside = [
  { name: "build", task: buildAddon },
  command("cargo fmt", "cargo", "fmt", "--all", "--check"),
  ...unlessGreen(RUST, [
    command(
      "cargo clippy",
      ...["cargo", "clippy", "--workspace", "--all-targets", "--all-features", "--locked"],
      ...["--", "-D", "warnings"],
    ),
    {
      name: "cargo doc",
      task: async () => {
        const args = ["doc", "--workspace", "--all-features", "--no-deps", "--locked"];
        await quietly("cargo", args, { env: { RUSTDOCFLAGS: "-D warnings" } });
      },
    },
  ]),
  { name: "circles of imports: Rust", task: checkRustCircles },
  { name: "rooms: Rust", task: checkRustRooms },
  { name: "rooms: TypeScript", task: async () => checkRooms() },
  { name: "names of types", task: checkTypeNames },
  ...unlessGreen(SCRIPTS, [
    command("eslint", bin("eslint"), "--max-warnings", "0", "."),
    command("types", "npm", "run", "--silent", "check:types"),
    // Imports of types alone do not count: nothing is left of them.
    command(
      "circles of imports: TypeScript",
      ...[bin("dpdm"), "--transform", "--no-tree", "--no-warning", "--no-progress"],
      ...["--exit-code", "circular:1", "npm/syncguard/*.ts", "npm/syncguard/cli/main.ts"],
    ),
    command("index.d.ts is current", "npm", "run", "--silent", "check:api"),
  ]),
  ...unlessGreen(EVERYTHING, [
    command("prettier", bin("prettier"), "--check", "."),
    command("knip", bin("knip"), "--no-progress", "--no-config-hints"),
    // Those to other sites are not followed, and what the site's own step makes beside this one is left alone.
    command(
      "links in documents",
      ...[
        bin("linkinator"),
        "*.md",
        "docs/**/*.md",
        "examples/*/*.md",
        "crates/**/*.md",
        "verify/**/*.md",
      ],
      ...["--markdown", "--directory-listing", "--check-fragments"],
      ...["--skip", "^https?://(?!localhost:)", "--skip", "/docs/reference/"],
      ...["--verbosity", "error"],
    ),
    command("site of the documents", "npm", "run", "--silent", "docs"),
  ]),
];

const after = [
  { name: "types of the addon are current", task: checkAddonTypes },
  { name: "exports", task: checkExports },
  { name: "publint, are the types wrong", task: checkPackage },
  { name: "cargo deny", task: cargoDeny },
  { name: "npm licences", task: allNpmLicences },
  { name: "npm audit", task: npmAudit },
  { name: "tracked files", task: checkTrackedFiles },
  { name: "citations", task: checkCitations },
  { name: "words of the glossary", task: checkGlossary },
  { name: "words in documents", task: checkWords },
];

await main(async () => {
  await install();
  await installProjects();
  await needCompilers();
  await buildTypeScript();
  const failed = await withSources(async () => [
    ...(await runSteps(beside)),
    ...(await runSteps(after)),
  ]);
  if (failed.length === 0) {
    console.log("check: all steps passed");
    return 0;
  }
  console.log(`check: failed: ${failed.join(", ")}`);
  return 1;
});

// npm run build:api: index.d.ts, the whole public API in one file, for review.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { dts } from "rollup-plugin-dts";

const shared = ["index", "common"];
const { exports: points } = JSON.parse(readFileSync("package.json", "utf8"));
const backends = Object.keys(points)
  .filter((point) => point !== "." && point !== "./package.json")
  .map((point) => point.slice(2))
  .filter((name) => !shared.includes(name));

const entry = "syncguard:api";
const path = (name) => fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
const code = [
  ...shared.map((name) => `export * from ${JSON.stringify(path(name))};`),
  ...backends.map((name) => `export * as ${name} from ${JSON.stringify(path(name))};`),
].join("\n");

export default {
  input: entry,
  output: { format: "es" },
  logLevel: "warn",
  plugins: [
    {
      name: "api",
      resolveId: (id) => (id === entry ? id : null),
      load: (id) => (id === entry ? code : null),
      // First of all, which entry point exports what.
      generateBundle(_, bundle) {
        const lists = [...shared, ...backends].map((name) => {
          const { exports } = this.getModuleInfo(path(name));
          const point = name === "index" ? "syncguard" : `syncguard/${name}`;
          return `// ${point}\n${wrap([...exports].sort())}\n`;
        });
        const [chunk] = Object.values(bundle);
        chunk.code = [
          "// The whole public API, made by `npm run build:api`. Which entry point exports what:\n//\n",
          lists.join("//\n"),
          "//\n// Below, the exports of the backends' entry points are in namespaces of their names.\n\n",
          chunk.code,
        ].join("");
      },
    },
    dts({ tsconfig: "tsconfig.json" }),
  ],
};

function wrap(names) {
  const lines = ["//  "];
  for (const name of names) {
    if (lines.at(-1).length + name.length > 100) lines.push("//  ");
    lines[lines.length - 1] += ` ${name}`;
  }
  return lines.join("\n");
}

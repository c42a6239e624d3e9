// What comments and documents cite: every document, and every heading in it, has to be there. Linkinator follows the links, but
// not to a heading of another Markdown file: that is done here. What it takes for no link, it does not follow: a link to a name,
// [text][name], that has no line [name]: in the document.
//
// A comment cites a document by its path, from the top of the repository or from a folder that the
// citing file is in, and a section by its heading: docs/format.md, "Lock ids".

import { readFileSync } from "node:fs";
import { join, posix } from "node:path";
import { root } from "./paths.mjs";
import { must } from "./run.mjs";

const READ = /\.(md|rs|sql|lua|toml|ts|mts|cts|js|mjs|cjs|sh|ya?ml)$/;
// What stands before the words of a comment that goes over several lines.
const LINE_START = /\n[ \t]*(?:\/\/[/!]?|--|\*(?!\/)|#)?[ \t]*/g;
const CITATION = /(?<![\w./:-])((?:[\w.-]+\/)*[\w-]+\.md)\b(?:`?((?:,?\s+(?:and\s+)?"[^"]+")+))?/g;
const LINK = /\]\((?!\w+:)([^)\s#]*)#([^)\s]+)\)/g;
const CODE = /^[ \t>]*(```|~~~).*?^[ \t>]*\1[ \t]*$|(`+)(?!`).*?(?<!`)\2(?!`)|<!--.*?-->/gms;
const NAMED_LINK = /\[((?:[^[\]]|\[[^[\]]*\])+)\]\[([^[\]]*)\]/g;
const LINK_NAME = /^ {0,3}\[([^[\]]+)\]:/gm;
const DECISION_NUMBER = /\bADR-\d+/g;

/** Fails when a tracked file cites a document or a heading that does not exist. */
export async function checkCitations() {
  const { output } = await must("git", ["ls-files", "-z"], { quiet: true });
  const files = new Map();
  for (const name of output.split("\0").filter(Boolean)) {
    const text = READ.test(name) ? readIfThere(name) : "";
    if (text !== undefined) files.set(name, text);
  }
  const faults = await citationFaults(files);
  if (faults.length > 0) throw new Error(faults.join("\n"));
  return `${files.size} files`;
}

function readIfThere(name) {
  try {
    return readFileSync(join(root, name), "utf8");
  } catch (error) {
    // Removed from the work tree and not yet from the index.
    if (error.code === "ENOENT") return undefined;
    throw error;
  }
}

/**
 * What is wrong with the citations in files.
 *
 * @param {ReadonlyMap<string, string>} files all files of the repository: their text by their path
 * @returns {Promise<string[]>} a line for each wrong citation, with its file and line
 */
export async function citationFaults(files) {
  // The check begins before the packages are there.
  const { default: GithubSlugger } = await import("github-slugger");
  return [...files].flatMap(([name, text]) => {
    const flat = text.replace(LINE_START, (start) => `\n${" ".repeat(start.length - 1)}`);
    const faults = [
      ...cited(name, flat, files),
      ...(name.endsWith(".md") ? linked(name, text, files, new GithubSlugger()) : []),
      ...(name.endsWith(".md") ? linkedByName(text) : []),
      ...[...flat.matchAll(DECISION_NUMBER)].map(({ 0: number, index }) => ({
        index,
        fault: `${number} is not in this repository: cite a page in docs/decisions`,
      })),
    ];
    return faults.map(
      ({ index, fault }) => `${name}:${text.slice(0, index).split("\n").length}: ${fault}`,
    );
  });
}

function cited(name, flat, files) {
  return [...flat.matchAll(CITATION)].flatMap(({ 1: path, 2: sections = "", index }) => {
    const documents = find(name, path, files);
    if (documents.length === 0) return [{ index, fault: `${path} does not exist` }];
    const headingsCited = [...sections.matchAll(/"([^"]+)"/g)].map(([, heading]) =>
      heading.replace(/\s+/g, " "),
    );
    const missing = documents.map((document) => {
      const known = headings(files.get(document));
      return headingsCited
        .filter((heading) => !known.includes(heading))
        .map((heading) => ({ index, fault: `${document} has no heading "${heading}"` }));
    });
    return missing.some((faults) => faults.length === 0) ? [] : missing[0];
  });
}

/** The links of a document to a heading that is not there, in a document that is. */
function linked(name, text, files, slugger) {
  return [...text.matchAll(LINK)].flatMap(({ 1: path, 2: fragment, index }) => {
    const target = path === "" ? name : posix.join(posix.dirname(name), path);
    if (!target.endsWith(".md") || !files.has(target)) return [];
    slugger.reset();
    const anchors = headings(files.get(target)).map((heading) =>
      slugger.slug(heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")),
    );
    if (anchors.includes(decodeURIComponent(fragment))) return [];
    return [{ index, fault: `${target} has no heading #${fragment}` }];
  });
}

/** The links of a document to a name that it gives to no link. Names are the same whatever their case and blanks. */
function linkedByName(text) {
  const shown = text.replace(CODE, (code) => code.replace(/[^\n]/g, " "));
  const same = (name) => name.trim().replace(/\s+/g, " ").toLowerCase();
  const known = new Set([...shown.matchAll(LINK_NAME)].map(([, name]) => same(name)));
  return [...shown.matchAll(NAMED_LINK)].flatMap(({ 1: link, 2: given, index }) => {
    const name = given || link;
    return known.has(same(name)) ? [] : [{ index, fault: `no link is called [${name}]` }];
  });
}

/** The files that `path` may mean in the file `name`: seen from its folder and from those above. */
function find(name, path, files) {
  const found = [];
  for (let folder = posix.dirname(name); ; folder = posix.dirname(folder)) {
    const candidate = posix.join(folder, path);
    if (files.has(candidate)) found.push(candidate);
    if (folder === ".") return found;
  }
}

function headings(markdown) {
  const text = markdown.replace(/^```.*?^```$/gms, "");
  return [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => heading.trim());
}

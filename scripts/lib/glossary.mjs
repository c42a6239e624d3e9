// A word that the glossary of CONTRIBUTING.md keeps for something else: a hash slot is never called a slot alone.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./paths.mjs";
import { must } from "./run.mjs";

const SEARCHED = ["*.md", "crates", "npm/syncguard", "docs"];
const READ = /\.(md|rs|ts|lua)$/;

/** Files of which every sentence is about Redis alone, where locks have no slots yet. */
const ABOUT_CLUSTERS =
  /^crates\/syncguard\/src\/redis\/(connection\/|hash_slots|transport\/cluster|wakeups\/(cluster|feed))/;
/** What sentences about hash slots speak of elsewhere. */
const OF_A_CLUSTER = /\bcluster|\bnodes?\b(?!\.js)|\bhash tag|\bmov(?:e|es|ing)\b/i;
/** What is "of a key" is a lock, and a compound such as "slot-move" is a name. */
const ALONE = /(?<!\b[Hh]ash[\s-]|\|)\b[Ss]lots?\b(?!-| of (?:a|each|the|another|these) key)/;

/** Fails when a comment, an error text or a document calls a hash slot a slot. */
export async function checkGlossary() {
  const { output } = await must("git", ["ls-files", "-z", "--", ...SEARCHED], { quiet: true });
  const names = output.split("\0").filter((name) => READ.test(name));
  const found = names.flatMap((name) => slotsAlone(name, readFileSync(join(root, name), "utf8")));
  if (found.length > 0) throw new Error(found.join("\n"));
  return `${names.length} files`;
}

/**
 * The sentences of a file that call a hash slot a slot.
 *
 * @param {string} name the file's path
 * @param {string} text
 * @returns {string[]}
 */
export function slotsAlone(name, text) {
  const isAboutClusters = ABOUT_CLUSTERS.test(name);
  return sentences(name, text)
    .filter((sentence) => ALONE.test(sentence) && (isAboutClusters || OF_A_CLUSTER.test(sentence)))
    .map((sentence) => `${name} calls a hash slot a slot: ${sentence}`);
}

/** What people read of a file: its prose without code, or its comments and the texts with blanks in its code. */
function sentences(name, text) {
  const parts = name.endsWith(".md") ? paragraphs(text) : [...comments(text), ...texts(text)];
  const prose = parts.map((part) => part.replace(/`[^`]*`/g, "code").replace(/\s+/g, " "));
  return prose.flatMap((part) => part.split(/(?<=[.:;])\s/)).map((sentence) => sentence.trim());
}

function paragraphs(text) {
  const prose = text.replace(/^[ \t>]*(```|~~~).*?^[ \t>]*\1[ \t]*$/gms, "");
  return prose.split(/\n\s*\n|\||^\s*(?:[-*]|\d+\.)\s/m);
}

const MARK = /^\s*(?:\/\/[/!]?|\/\*\*?|\*\/?|--)(?:\s|$)/;

function comments(text) {
  const blocks = [""];
  for (const line of text.split("\n")) {
    if (MARK.test(line)) blocks.push(`${blocks.pop()} ${line.replace(MARK, "")}`);
    else if (blocks.at(-1) !== "") blocks.push("");
  }
  return blocks;
}

function texts(text) {
  const [code] = text.split(/^#\[cfg\(test\)\]\nmod /m);
  const joined = code.replace(/\\\n\s*/g, "");
  return [...joined.matchAll(/"([^"\n]* [^"\n]*)"/g)].map(([, words]) => words);
}

/** What a command is, and how its arguments are read. */

import { parseArgs } from "node:util";
import { nearest, shown } from "../options/known.js";
import { usage } from "./exit.js";
import type { Output } from "./output.js";
import { OPTIONS_OF_STORES } from "./stores.js";
import type { Options, Values } from "./values.js";

export type Invocation = {
  readonly values: Values;
  /** As many as the command has names for; more where the last of them ends with an ellipsis. */
  readonly operands: readonly string[];
  /** What follows `--`, of a command that runs another. */
  readonly rest: readonly string[];
  readonly out: Output;
};

export type Command = {
  readonly name: string;
  /** One line. */
  readonly summary: string;
  /** What the operands are called, such as `<key>`, or `<key>…` of one that may be repeated. */
  readonly operands: readonly string[];
  /** What follows `--`, if anything may. */
  readonly rest?: string;
  /** Paragraphs. */
  readonly description: string;
  readonly options: Options;
  /** Command lines, and what they do. */
  readonly examples: readonly (readonly [line: string, meaning: string])[];
  /** The codes that are not the same for all commands. */
  readonly exits: readonly (readonly [code: string, meaning: string])[];
  /** Gives the exit code. */
  run(invocation: Invocation): Promise<number>;
};

/** The options of every command. */
export const COMMON: Options = {
  url: {
    type: "string",
    value: "URL",
    help: "where the locks are, as in SYNCGUARD_URL, which is the default",
  },
  local: {
    type: "boolean",
    help: "use the SQLite file of lock(): no other user and no other machine sees its locks",
  },
  json: { type: "boolean", help: "print JSON; errors, too, as JSON on stderr" },
  timeout: {
    type: "string",
    value: "DURATION",
    help: "how long one operation may take; default 5s",
  },
  ...OPTIONS_OF_STORES,
  verbose: { type: "boolean", short: "v", help: "say on stderr which store is used, and more" },
  help: { type: "boolean", short: "h", help: "show this help" },
};

export type Arguments = Omit<Invocation, "out">;

/** One lock id in 64 begins with a hyphen, as options do. */
const HYPHENED_LOCK_ID = /^-[\w-]{21}$/;

/** The arguments with such lock ids after `--`, where nothing is an option. */
function withLockIds(words: readonly string[], options: Options): string[] {
  const end = words.includes("--") ? words.indexOf("--") : words.length;
  const isLockId = (word: string): boolean =>
    HYPHENED_LOCK_ID.test(word) && options[word.slice(2)] === undefined;
  const before = words.slice(0, end);
  const lockIds = before.filter(isLockId);
  return [...before.filter((word) => !isLockId(word)), "--", ...lockIds, ...words.slice(end + 1)];
}

/**
 * Reads the arguments of a command. With `--help` operands may be missing.
 *
 * @throws CliError without anything of the arguments but names of options: they may contain a password
 */
export function readArguments(command: Command, words: readonly string[]): Arguments {
  let own = [...words];
  let rest: string[] = [];
  if (command.rest !== undefined && own.includes("--")) {
    const at = own.indexOf("--");
    rest = own.slice(at + 1);
    own = own.slice(0, at);
  }
  const options = { ...COMMON, ...command.options };
  // Before anything else: without the --, the options of the other command would be taken for ours.
  if (command.rest !== undefined && rest.length === 0 && !own.some(asksForHelp)) {
    throw usage(
      `${command.name} needs a command after --`,
      `syncguard ${command.name} ${command.operands.join(" ")} -- ${command.rest}`,
    );
  }
  const types = Object.fromEntries(
    Object.entries(options).map(([name, { type, short }]) => [
      name,
      short === undefined ? { type } : { type, short },
    ]),
  );
  const { values, positionals } = parseKnown(withLockIds(own, options), types);
  if (values.help !== true) {
    const { length } = command.operands;
    const isMore = command.operands.at(-1)?.endsWith("…") === true && positionals.length > length;
    if (positionals.length !== length && !isMore) {
      const expected = length === 0 ? "no argument" : command.operands.join(" ");
      throw usage(
        `${command.name} takes ${expected}, but got ${positionals.length}`,
        `syncguard ${command.name} --help`,
      );
    }
  }
  return { values, operands: positionals, rest };
}

const asksForHelp = (argument: string): boolean => argument === "--help" || argument === "-h";

type Types = Record<string, { type: "string" | "boolean"; short?: string }>;

function parseKnown(args: string[], options: Types): { values: Values; positionals: string[] } {
  try {
    const { values, positionals } = parseArgs({ args, options, allowPositionals: true });
    return { values: values, positionals };
  } catch {
    // Node's message may repeat an argument.
    throw explain(args, options);
  }
}

/** What is wrong with the arguments: the first option that does not fit. */
function explain(args: string[], options: Types): Error {
  const { tokens } = parseArgs({
    args,
    options,
    allowPositionals: true,
    strict: false,
    tokens: true,
  });
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    const { name, rawName, value } = token;
    const known = options[name];
    if (known === undefined) {
      const near = nearest(name, Object.keys(options));
      return usage(
        `${shown(rawName, "an option that is given")} is not an option`,
        near === undefined ? "--help lists the options" : `did you mean --${near}?`,
      );
    }
    if (known.type === "boolean" && value !== undefined) {
      return usage(`--${name} takes no value`);
    }
    if (known.type === "string" && (value === undefined || value.startsWith("-"))) {
      return usage(`--${name} needs a value`, `if the value begins with -, write --${name}=VALUE`);
    }
  }
  return usage("the arguments cannot be read", "--help shows what is possible");
}

/** What `--help` prints. */

import { COMMON, type Command } from "./command.js";
import type { Options } from "./values.js";

/** The codes that every command may end with. */
const EXITS: readonly (readonly [string, string])[] = [
  ["0", "done"],
  ["64", "wrong arguments or configuration"],
  ["69", "the store cannot be reached, or answers too late"],
  ["70", "anything else"],
  ["77", "the store refuses the user or misses a right"],
];

export function helpOf(command: Command): string {
  const { name, operands, rest, description, options, examples, exits } = command;
  const line = ["syncguard", name, ...operands, "[options]"];
  if (rest !== undefined) line.push("--", rest);
  const lists = exits.some(([code]) => code === "0") ? EXITS.slice(1) : EXITS;
  return [
    `Usage: ${line.join(" ")}`,
    description,
    ...(Object.keys(options).length === 0 ? [] : [`Options:\n${listOptions(options)}`]),
    `Options of all commands:\n${listOptions(COMMON)}`,
    `Examples:\n${examples.map(([text, meaning]) => `  ${text}\n      ${meaning}`).join("\n")}`,
    `Exit codes:\n${columns([...exits, ...lists])}`,
    "",
  ]
    .join("\n\n")
    .trimEnd();
}

export function generalHelp(commands: readonly Command[]): string {
  return [
    "Usage: syncguard <command> [arguments] [options]",
    "Locks that many processes share, on Redis, PostgreSQL, Firestore or SQLite.",
    `Commands:\n${columns(commands.map(({ name, operands, rest, summary }) => [[name, ...operands, ...(rest === undefined ? [] : ["--", rest])].join(" "), summary]))}`,
    [
      "Where the locks are: --url, or SYNCGUARD_URL, or --local for the SQLite file of lock(), which no other user and no other",
      "machine sees. A password is safer in SYNCGUARD_URL: other users of the machine can see the arguments of a program.",
    ].join("\n"),
    `Exit codes:\n${columns([...EXITS, ["1, 75, 76", "see the commands"]])}`,
    "syncguard <command> --help shows the options of a command, with examples.",
  ].join("\n\n");
}

function listOptions(options: Options): string {
  return columns(
    Object.entries(options).map(([name, { short, value, help }]) => [
      `${short === undefined ? "" : `-${short}, `}--${name}${value === undefined ? "" : ` ${value}`}`,
      help,
    ]),
  );
}

function columns(rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(...rows.map(([first]) => first.length));
  return rows.map(([first, second]) => `  ${first.padEnd(width)}  ${second}`).join("\n");
}

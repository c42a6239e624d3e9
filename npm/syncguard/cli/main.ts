#!/usr/bin/env node
/** `syncguard` on the command line. */

import { constants } from "../native/constants.js";
import { nearest, shown } from "../options/known.js";
import { type Command, readArguments } from "./command.js";
import { exec } from "./commands/exec.js";
import { dashboard } from "./commands/dashboard.js";
import { doctor } from "./commands/doctor.js";
import { forceRelease } from "./commands/force-release.js";
import { list } from "./commands/list.js";
import { mark } from "./commands/mark.js";
import { release } from "./commands/release.js";
import { setup } from "./commands/setup.js";
import { status } from "./commands/status.js";
import { watch } from "./commands/watch.js";
import { CliError, Exit, toCliError, usage } from "./exit.js";
import { generalHelp, helpOf } from "./help.js";
import { Output, surviveWriteErrors } from "./output.js";

const COMMANDS: readonly Command[] = [
  exec,
  status,
  list,
  watch,
  dashboard,
  release,
  forceRelease,
  mark,
  setup,
  doctor,
];

async function main(argv: readonly string[]): Promise<number> {
  const [name, ...args] = argv;
  if (name === undefined) throw usage("which command?", "syncguard --help lists the commands");
  if (name === "--help" || name === "-h" || name === "help") {
    const topic = COMMANDS.find((command) => command.name === args[0]);
    console.log(topic === undefined ? generalHelp(COMMANDS) : helpOf(topic));
    return Exit.OK;
  }
  if (name === "--version" || name === "-V") {
    console.log(constants.version);
    return Exit.OK;
  }
  const command = COMMANDS.find((known) => known.name === name);
  if (command === undefined && name.startsWith("-")) {
    throw usage("the command comes first, then its options", "syncguard --help lists the commands");
  }
  if (command === undefined) {
    const near = nearest(
      name,
      COMMANDS.map((known) => known.name),
    );
    throw usage(
      `${shown(name, "the first argument")} is not a command`,
      near === undefined ? "syncguard --help lists the commands" : `did you mean ${near}?`,
    );
  }
  const invocation = readArguments(command, args);
  const { values } = invocation;
  if (values.help === true) {
    console.log(helpOf(command));
    return Exit.OK;
  }
  const out = new Output(values.json === true, values.verbose === true);
  return await command.run({ ...invocation, out });
}

/** Of arguments that may not be readable: they stand before `--`. */
function has(argv: readonly string[], ...names: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return (end === -1 ? argv : argv.slice(0, end)).some((argument) => names.includes(argument));
}

function fail(error: unknown, argv: readonly string[]): number {
  const reported: CliError = toCliError(error);
  const out = new Output(has(argv, "--json"), has(argv, "--verbose", "-v"));
  out.error(reported);
  if (out.verbose && error instanceof Error && !(error instanceof CliError)) {
    for (let cause: unknown = error.cause; cause instanceof Error; cause = cause.cause) {
      out.note(`cause: ${cause.message}`);
    }
    if (reported.exitCode === Exit.INTERNAL) out.note(String(error.stack));
  }
  return reported.exitCode;
}

surviveWriteErrors();
const argv = process.argv.slice(2);
// What Node.js and the library warn of is for programmers.
if (!has(argv, "--verbose", "-v")) process.removeAllListeners("warning");
void main(argv)
  .catch((error: unknown) => fail(error, argv))
  .then((code) => {
    process.exitCode = code || process.exitCode;
  });

/** What is printed: results to stdout, everything else to stderr. */

import { type CliError, Exit } from "./exit.js";

const STYLES = { red: 31, green: 32, yellow: 33, bold: 1, dim: 2 } as const;

export type Style = keyof typeof STYLES;

/** Text for people, without what could move a terminal's cursor or change its colours: keys are anybody's input. */
export function printable(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, (character) => {
    const code = character.charCodeAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
}

/** The same for texts of several lines. Only the first begins at the margin, where our own lines do. */
function printableLines(text: string): string {
  return text
    .split("\n")
    .map((line) => printable(line.trimStart()))
    .join("\n  ");
}

const unread = new AbortController();

/** Aborted when results cannot be written any more: whoever has read them may have stopped, as `head` does. */
export const stdoutEnded: AbortSignal = unread.signal;

/**
 * Keeps a failure to write from ending the process: what is done under a lock must not depend on who reads what we say of it.
 * A result that could not be written is an error, unless nobody wanted it.
 */
export function surviveWriteErrors(): void {
  process.stderr.on("error", () => undefined);
  process.stdout.on("error", ({ code }: NodeJS.ErrnoException) => {
    if (code !== "EPIPE") process.exitCode ||= Exit.INTERNAL;
    unread.abort();
  });
}

export class Output {
  constructor(
    /** Whether results and errors are JSON. */
    readonly json: boolean,
    readonly verbose: boolean,
  ) {}

  /** Prints a result: one line of JSON, or what `forPeople` gives. */
  result(value: unknown, forPeople: () => string): void {
    this.print(this.json ? JSON.stringify(value) : forPeople());
  }

  print(text: string): void {
    process.stdout.write(`${text}\n`);
  }

  /** Says something that is not the result. */
  note(text: string): void {
    if (this.json) process.stderr.write(`${JSON.stringify({ note: text })}\n`);
    else this.say(printableLines(text));
  }

  private say(text: string): void {
    process.stderr.write(`syncguard: ${text}\n`);
  }

  /** Says something that only those want to know who asked for it. */
  detail(text: string): void {
    if (this.verbose) this.note(text);
  }

  error(error: CliError): void {
    const { code, message, hint } = error;
    if (this.json) {
      process.stderr.write(`${JSON.stringify({ error: { code, message, hint } })}\n`);
      return;
    }
    this.say(`${this.style("red", "error", process.stderr)}: ${printableLines(message)}`);
    if (hint !== undefined) this.note(`hint: ${hint}`);
  }

  /** Colours text if `stream` is a terminal that wants colours. */
  style(style: Style, text: string, stream: NodeJS.WriteStream = process.stdout): string {
    if (!hasColours(stream)) return text;
    return `\u001b[${STYLES[style]}m${text}\u001b[0m`;
  }

  /** Names and values, one below the other. */
  pairs(pairs: readonly (readonly [name: string, value: string])[]): string {
    const width = Math.max(...pairs.map(([name]) => name.length));
    return pairs
      .map(([name, value]) => `${this.style("dim", name.padEnd(width))}  ${printable(value)}`)
      .join("\n");
  }

  /** A table without lines. The last column is as wide as it is. */
  table(head: readonly string[], rows: readonly (readonly string[])[]): string {
    const cells = rows.map((row) => row.map(printable));
    const widths = head.map((name, at) =>
      Math.max(name.length, ...cells.map((row) => row[at]?.length ?? 0)),
    );
    const line = (row: readonly string[]): string =>
      row
        .map((cell, at) => cell.padEnd(widths[at] as number))
        .join("  ")
        .trimEnd();
    return [this.style("bold", line(head)), ...cells.map(line)].join("\n");
  }
}

/** https://no-color.org */
function hasColours(stream: NodeJS.WriteStream): boolean {
  const { NO_COLOR, TERM } = process.env;
  return stream.isTTY && !NO_COLOR && TERM !== "dumb";
}

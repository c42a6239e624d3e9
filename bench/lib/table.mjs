// Medians with their spread, in columns.

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The median, the smallest and the largest. */
export function spread(values, digits = 0) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return `${median(values).toFixed(digits)} (${low.toFixed(digits)}–${high.toFixed(digits)})`;
}

/** Prints rows of texts; the first is the heading. */
export function printTable(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  const line = (row) =>
    row.map((text, column) =>
      column === 0 ? text.padEnd(widths[column]) : text.padStart(widths[column]),
    );
  for (const [index, row] of rows.entries()) {
    console.log(`| ${line(row).join(" | ")} |`);
    if (index === 0) {
      console.log(
        `|${widths.map((width, column) => (column === 0 ? "-".repeat(width + 2) : `${"-".repeat(width + 1)}:`)).join("|")}|`,
      );
    }
  }
}

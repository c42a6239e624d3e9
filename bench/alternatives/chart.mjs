// A bar chart as SVG: readable in light and dark, with the smallest and the largest sample as a whisker.

const WIDTH = 760;
const LEFT = 210;
const RIGHT = 90;
const BAR = 16;
const GAP = 5;
const HEADING = 26;

const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .section { font-weight: 600 }
  .axis, .tick { fill: #57606a }
  .grid { stroke: #d0d7de }
  .whisker { stroke: #24292f; stroke-width: 1.5 }
  .own { fill: #0969da }
  .other { fill: #8c959f }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .axis, .tick { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .whisker { stroke: #e6edf3 }
    .own { fill: #4493f8 }
    .other { fill: #6e7681 }
  }
`;

/**
 * Horizontal bars in sections.
 *
 * @param {{ title: string, axis: string, sections: { label: string, bars: { name: string, own: boolean,
 *   value: number, low: number, high: number, text: string }[] }[] }} chart `axis` names what is shown, and its unit
 * @returns {string} the SVG
 */
export function barChart({ title, axis, sections }) {
  const largest = Math.max(...sections.flatMap(({ bars }) => bars.map(({ high }) => high)));
  const step = niceStep(largest);
  const limit = Math.ceil(largest / step) * step || 1;
  const x = (value) => LEFT + (value / limit) * (WIDTH - LEFT - RIGHT);
  const parts = [];
  let y = 40;
  for (const { label, bars } of sections) {
    parts.push(text(12, y + 14, label, "section"));
    y += HEADING;
    for (const { name, own, value, low, high, text: shown } of bars) {
      const middle = y + BAR / 2;
      parts.push(text(LEFT - 8, middle + 4, name, "", "end"));
      parts.push(
        `<rect class="${own ? "own" : "other"}" x="${LEFT}" y="${y}" width="${round(Math.max(1, x(value) - LEFT))}" height="${BAR}" rx="2"/>`,
      );
      parts.push(
        `<path class="whisker" d="M${round(x(low))} ${middle}H${round(x(high))}M${round(x(low))} ${middle - 4}v8M${round(x(high))} ${middle - 4}v8"/>`,
      );
      parts.push(text(round(x(high)) + 8, middle + 4, shown));
      y += BAR + GAP;
    }
    y += 8;
  }
  const bottom = y + 4;
  const grid = [];
  for (let value = 0; value <= limit + step / 2; value += step) {
    const at = round(x(value));
    grid.push(`<path class="grid" d="M${at} 34V${bottom}"/>`);
    grid.push(text(at, bottom + 16, number(value, step), "tick", "middle"));
  }
  const height = bottom + 46;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${escaped(title)}">
<style>${STYLE}</style>
${text(12, 22, title, "title")}
${grid.join("\n")}
${parts.join("\n")}
${text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, axis, "axis", "middle")}
</svg>
`;
}

/** Four to eight steps of 1, 2 or 5 times a power of ten. */
function niceStep(largest) {
  const power = 10 ** Math.floor(Math.log10(largest / 4 || 1));
  const times = [1, 2, 5, 10].find((factor) => largest / (factor * power) <= 8);
  return times * power;
}

const round = (value) => Number(value.toFixed(1));

function number(value, step) {
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

function text(x, y, content, kind = "", anchor = "start") {
  const attributes = `${kind && ` class="${kind}"`} x="${x}" y="${y}" text-anchor="${anchor}"`;
  return `<text${attributes}>${escaped(content)}</text>`;
}

const escaped = (content) => content.replace(/[&<>"]/g, (sign) => `&#${sign.codePointAt(0)};`);

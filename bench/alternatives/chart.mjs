// A bar chart as SVG: readable in light and dark, with the smallest and the largest sample as a whisker.

const WIDTH = 760;
const LEFT = 210;
const RIGHT = 90;
const BAR = 16;
const GAP = 5;
const HEADING = 26;

/** The names of the colours are those of the pictures in docs/images: on the site, its theme gives them their values. */
const STYLE = `
  svg { --ink: #24292f; --soft: #57606a; --line: #d0d7de; --own: #0969da; --other: #8c959f; font-family: system-ui, sans-serif }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --own: #4493f8; --other: #6e7681 }
  }
`;

const PLAIN = 'fill="var(--ink)"';
const BOLD = `${PLAIN} font-weight="600"`;
const TITLE = `${BOLD} font-size="15"`;
const SOFT = 'fill="var(--soft)"';
const GRID = 'stroke="var(--line)"';
const WHISKER = 'stroke="var(--ink)" stroke-width="1.5"';

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
    parts.push(text(12, y + 14, label, BOLD));
    y += HEADING;
    for (const { name, own, value, low, high, text: shown } of bars) {
      const middle = y + BAR / 2;
      parts.push(text(LEFT - 8, middle + 4, name, PLAIN, "end"));
      parts.push(
        `<rect fill="var(--${own ? "own" : "other"})" x="${LEFT}" y="${y}" width="${round(Math.max(1, x(value) - LEFT))}" height="${BAR}" rx="2"/>`,
      );
      parts.push(
        `<path ${WHISKER} d="M${round(x(low))} ${middle}H${round(x(high))}M${round(x(low))} ${middle - 4}v8M${round(x(high))} ${middle - 4}v8"/>`,
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
    grid.push(`<path ${GRID} d="M${at} 34V${bottom}"/>`);
    grid.push(text(at, bottom + 16, number(value, step), SOFT, "middle"));
  }
  const height = bottom + 46;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-size="12">
<style>${STYLE}</style>
${text(12, 22, title, TITLE)}
${grid.join("\n")}
${parts.join("\n")}
${text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, axis, SOFT, "middle")}
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

function text(x, y, content, look = PLAIN, anchor = "start") {
  return `<text ${look} x="${x}" y="${y}" text-anchor="${anchor}">${escaped(content)}</text>`;
}

const escaped = (content) => content.replace(/[&<>"]/g, (sign) => `&#${sign.codePointAt(0)};`);

// Progress: redrawn in place on a terminal, plain lines anywhere else.

const BAR = 30;
const EVERY_MS = 100;

/** Shows the tally until it is stopped. `say` adds a line that stays. */
export function createDisplay(output, { tally, unique }) {
  const began = Date.now();
  const time = () => `${((Date.now() - began) / 1000).toFixed(1).padStart(5)} s`;
  return output.isTTY ? live(output, time, tally, unique) : plain(output, time, tally, unique);
}

function plain(output, time, tally, unique) {
  let tenths = 0;
  const timer = setInterval(() => {
    const now = Math.floor((tally.paid / unique) * 10);
    if (now <= tenths) return;
    tenths = now;
    say(`${tally.paid} of ${unique} payments`);
  }, EVERY_MS);
  function say(text) {
    output.write(`${time()}  ${text}\n`);
  }
  return { say, stop: () => clearInterval(timer) };
}

function live(output, time, tally, unique) {
  let drawn = 0;
  const timer = setInterval(draw, EVERY_MS);
  draw();
  return { say, stop };

  function draw() {
    clear();
    const lines = [progress(), ...[...tally.workers].map(([worker, entry]) => line(worker, entry))];
    const width = Math.min(output.columns ?? 80, 80) - 1;
    output.write(lines.map((text) => `${text.slice(0, width)}\n`).join(""));
    drawn = lines.length;
  }

  function clear() {
    if (drawn > 0) output.write(`\x1b[${drawn}A\x1b[0J`);
    drawn = 0;
  }

  function say(text) {
    clear();
    output.write(`${time()}  ${text}\n`);
    draw();
  }

  function stop() {
    clearInterval(timer);
    clear();
  }

  function progress() {
    const full = Math.min(BAR, Math.floor((tally.paid / unique) * BAR));
    const bar = "█".repeat(full) + "░".repeat(BAR - full);
    return `${time()}  ${bar}  ${tally.paid} of ${unique} payments`;
  }

  function line(worker, { pid, state, paid, account }) {
    const where = state === "working" || state === "stopped" ? account : "";
    const label = `worker ${worker}  pid ${String(pid).padEnd(8)}`;
    return `         ${label}${String(paid).padStart(4)} paid  ${state.padEnd(8)} ${where}`;
  }
}

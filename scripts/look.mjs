// npm run docs:look: every page of the site as Chromium shows it, on a telephone and on a screen, light and dark. No page may
// scroll sideways, none may be longer than people scroll, no sample and no table of sentences may be wider than its box, no text may be
// too pale for its ground, and no link may lead nowhere. The site must be built: `npm run docs`.

/* global document, getComputedStyle, localStorage, Node -- Chromium's. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, relative, sep } from "node:path";
import { needPrograms } from "./lib/debian.mjs";
import { bin, filesUnder, root } from "./lib/paths.mjs";
import { main, run, which } from "./lib/run.mjs";

const site = join(root, "docs", ".vitepress", "dist");
const BROWSERS = ["chromium", "google-chrome"];
const WIDTHS = [390, 1440];
/** In px, on a screen. */
const LONGEST = 20_000;
const TYPES = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

await main(async () => {
  if (!existsSync(site)) throw new Error("the site is not built: run `npm run docs` first");
  await needPrograms([
    { command: BROWSERS, packages: ["chromium"], why: "shows the site's pages" },
  ]);
  const pages = filesUnder(site, (path) => path.endsWith(".html"))
    .map((path) => relative(site, path).split(sep).join("/"))
    .filter((page) => page !== "404.html");
  // Also in the API reference, which is made with the site.
  const { code } = await run(
    bin("linkinator"),
    [
      "**/*.html",
      "--check-fragments",
      "--skip",
      "^https?://(?!localhost:)",
      "--verbosity",
      "error",
    ],
    { cwd: site },
  );
  const faults = await look(pages);
  for (const fault of faults) console.log(fault);
  console.log(`look: ${pages.length} pages, ${faults.length} faults`);
  return faults.length === 0 ? code : 1;
});

/** Opens a page that shows all others, one after the other, in frames, and gives what it reports. */
async function look(pages) {
  const server = createServer();
  const reported = new Promise((resolve) => {
    server.on("request", (request, response) => {
      const path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
      if (request.method === "POST") {
        let body = "";
        request.on("data", (chunk) => (body += chunk));
        request.on("end", () => {
          response.end();
          resolve(JSON.parse(body));
        });
      } else if (path === "/look") {
        response.setHeader("content-type", "text/html");
        response.end(
          `<script type="module">(${inBrowser})(${JSON.stringify([pages, WIDTHS, LONGEST])})</script>`,
        );
      } else {
        const file = join(site, path);
        const known = file.startsWith(site + sep) && existsSync(file) && extname(file) !== "";
        response.statusCode = known ? 200 : 404;
        response.setHeader("content-type", TYPES[extname(file)] ?? "application/octet-stream");
        response.end(known ? readFileSync(file) : undefined);
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const profile = mkdtempSync(join(tmpdir(), "syncguard-look-"));
  const options = ["--headless", "--remote-debugging-port=0", `--user-data-dir=${profile}`];
  // Chromium refuses to be root's in its sandbox. It sees these pages alone.
  if (process.getuid?.() === 0) options.push("--no-sandbox");
  const url = `http://127.0.0.1:${server.address().port}/look`;
  const browser = spawn(BROWSERS.find(which), [...options, url], { stdio: "ignore" });
  const ended = once(browser, "exit");
  try {
    const early = ended.then(() => {
      throw new Error("Chromium ended before it had shown all pages");
    });
    return await Promise.race([reported, early]);
  } finally {
    browser.kill();
    await ended;
    server.closeAllConnections();
    server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Runs in Chromium, as text. */
async function inBrowser([pages, widths, longest]) {
  const faults = [];
  for (const theme of ["light", "dark"]) {
    localStorage.setItem("vitepress-theme-appearance", theme);
    for (const width of widths) {
      for (const page of pages) {
        const frame = document.createElement("iframe");
        frame.width = width;
        frame.height = 900;
        frame.src = `/${page}`;
        document.body.append(frame);
        await new Promise((loaded) => frame.addEventListener("load", loaded, { once: true }));
        const shown = frame.contentDocument;
        while (!shown.querySelector("#app")?.__vue_app__)
          await new Promise((next) => setTimeout(next, 10));
        const sideways = shown.documentElement.scrollWidth - width;
        const where = `${page}, ${width} px, ${theme}`;
        if (sideways > 0) faults.push(`${where}: scrolls sideways by ${sideways} px`);
        const height = shown.documentElement.scrollHeight;
        if (width === 1440 && height > longest) faults.push(`${where}: is ${height} px long`);
        for (const { localName, scrollWidth, clientWidth, innerText } of shown.querySelectorAll(
          'div[class*="language-"] pre, table:has([data-column])',
        ))
          if (scrollWidth > clientWidth)
            faults.push(
              `${where}: a ${localName} is wider than its box by ${scrollWidth - clientWidth} px: ${innerText.slice(0, 60)}`,
            );
        for (const fault of tooPale(shown)) faults.push(`${where}: ${fault}`);
        frame.remove();
      }
    }
  }
  await fetch("/look", { method: "POST", body: JSON.stringify(faults) });

  /** Texts with a contrast below 4.5, the limit of WCAG's level AA. */
  function tooPale(shown) {
    const found = new Set();
    for (const element of shown.querySelectorAll("main *:not(svg, svg *)")) {
      const isText = [...element.childNodes].some(
        ({ nodeType, data }) => nodeType === Node.TEXT_NODE && data.trim() !== "",
      );
      const { color, visibility, opacity } = getComputedStyle(element);
      const isSeen = visibility === "visible" && opacity !== "0" && element.getClientRects().length;
      if (!isText || !isSeen) continue;
      const ground = groundOf(element);
      const [darker, lighter] = [ground, over(parsed(color), ground)]
        .map(light)
        .sort((a, b) => a - b);
      const contrast = (lighter + 0.05) / (darker + 0.05);
      if (contrast < 4.5)
        found.add(
          `${element.localName}.${element.className} has a contrast of ${contrast.toFixed(1)}`,
        );
    }
    return found;
  }

  function groundOf(element) {
    const { backgroundColor } = getComputedStyle(element);
    const colour = parsed(backgroundColor);
    if (colour.alpha === 1) return colour.rgb;
    return over(colour, element.parentElement ? groundOf(element.parentElement) : [255, 255, 255]);
  }

  function parsed(colour) {
    const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  }

  function over({ rgb, alpha }, ground) {
    return rgb.map((value, index) => value * alpha + ground[index] * (1 - alpha));
  }

  function light(rgb) {
    const [red, green, blue] = rgb
      .map((value) => value / 255)
      .map((value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }
}

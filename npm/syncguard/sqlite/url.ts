import { invalid } from "../options/validation.js";

/**
 * The file that a `sqlite:` URL names: `sqlite:///absolute/path`, `sqlite:relative/path` or `sqlite::memory:`.
 *
 * @param name - what to call the URL in errors, which do not show it
 * @throws LockError `InvalidArgument`
 */
export function sqlitePathOfUrl(url: string, name: string): string {
  const rest = url.slice("sqlite:".length);
  if (rest === ":memory:") return rest;
  if (/[?#]/.test(rest)) throw invalid(`${name}: a sqlite URL takes no parameters`);
  let path = rest;
  if (rest.startsWith("//")) {
    path = rest.slice(2);
    if (!path.startsWith("/")) {
      throw invalid(
        `${name}: a sqlite URL names no host; write sqlite:///absolute/path or sqlite:relative/path`,
      );
    }
    // sqlite:///C:/locks.db
    if (process.platform === "win32") path = path.replace(/^\/(?=[A-Za-z]:)/, "");
  }
  try {
    path = decodeURIComponent(path);
  } catch {
    throw invalid(`${name}: the percent-encoding of the sqlite URL is malformed`);
  }
  if (path === "" || path === "/") throw invalid(`${name}: a sqlite URL needs a path`);
  return path;
}

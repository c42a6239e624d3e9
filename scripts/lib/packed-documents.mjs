// The documents in the package: its README, which is that of the repository without what only a clone can do, and docs/, which
// the texts of errors and the comments on types cite.

import { posix } from "node:path";

/** What stands between these is for readers of the repository; a comment that begins with `package`, for those of the package. */
const OURS = /^<!-- repository -->\n.*?^<!-- end -->\n\n?/gms;
const THEIRS = /^<!-- package\n(.*?)^-->\n/gms;
const LINK = /(\]\()([^)\s]+)(?=\))/g;

/** The README of the package, made of that of the repository. */
export function packedReadme(text, repository) {
  const chosen = text.replace(OURS, "").replace(THEIRS, "$1");
  return packedDocument("README.md", chosen, repository);
}

/** A document of the package: a link to what is not in it leads to the repository. */
export function packedDocument(path, text, repository) {
  return text.replace(LINK, (all, start, href) => {
    if (/^([a-z]+:|#)/.test(href)) return all;
    const target = posix.join(posix.dirname(path), href);
    return isPacked(target.replace(/#.*/, "")) ? all : `${start}${repository}/blob/main/${target}`;
  });
}

/** Whether a file of the repository is a document in the package. */
export function isPacked(path) {
  return (
    ["README.md", "CHANGELOG.md"].includes(path) ||
    /^docs\/(?!\.|reference\/)[^.]*\.(md|svg)$/.test(path)
  );
}

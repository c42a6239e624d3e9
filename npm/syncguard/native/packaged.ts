/** The platforms that have a package. scripts/lib/pack.mjs writes them here. In the repository the list is empty, because there the addon is built. */
export const PACKAGED: readonly string[] = [];

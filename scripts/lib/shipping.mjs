// The bundlers and package managers with which users ship this package: packages of npm, which
// __test__/package/programs/package.json names.

import { FetchedPackages } from "./fetched.mjs";
import { shippingProject } from "./paths.mjs";

const packages = new FetchedPackages(shippingProject);

/** A file or folder of one of them, once `needShipping` was called. */
export const shippingTool = (path) => packages.path(path);

/** Makes sure that all of them are there. */
export async function needShipping() {
  await packages.need();
}

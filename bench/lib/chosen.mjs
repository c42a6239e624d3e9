// What a list on the command line chooses.

/** The names that `option` lists; all of them if it is not given. */
export function chosen(option, all, names = all) {
  const unknown = names.find((name) => !all.includes(name));
  if (unknown !== undefined) {
    throw new Error(`--${option}: no ${unknown}; there are: ${all.join(", ")}`);
  }
  return names;
}

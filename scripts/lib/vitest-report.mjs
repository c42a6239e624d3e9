// A reporter of vitest: every test with what became of it, and what failed outside of tests, as JSON in the file that
// SYNCGUARD_REPORT names.

import { writeFileSync } from "node:fs";
import { relative } from "node:path";

export default class Report {
  onTestRunEnd(modules, unhandled) {
    const tests = [];
    const files = [];
    for (const module of modules) {
      const where = relative(process.cwd(), module.moduleId);
      for (const test of module.children.allTests()) {
        const { state, errors } = test.result();
        tests.push({ where, name: nameOf(test), state, text: textOf(errors) });
      }
      // Of suites: their hooks. What is left of a file whose own hook failed is skipped.
      const broken = [module, ...module.children.allSuites()].flatMap((part) => part.errors());
      if (broken.length > 0) files.push({ where, text: textOf(broken) });
    }
    const errors = unhandled.map((error) => textOf([error]));
    writeFileSync(process.env.SYNCGUARD_REPORT, JSON.stringify({ tests, files, errors }));
  }
}

/** As the option -t compares it: the names of its suites, and its own. */
function nameOf(test) {
  const names = [];
  for (let part = test; part.type !== "module"; part = part.parent) names.unshift(part.name);
  return names.join(" ");
}

function textOf(errors = []) {
  return errors
    .map(({ stack, message }) => stack || message || "an error without a message")
    .join("\n");
}

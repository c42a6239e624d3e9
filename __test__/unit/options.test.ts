import { expect, test } from "vitest";
import { checkKnownOptions, nearest } from "../../dist/options/known.js";

const known = ["tableName", "fenceTableName", "poolSize", "prepare"];
const check = (given: object) => () => checkKnownOptions(given, known, "PostgreSQL backend option");

test("known options and members that are undefined pass", () => {
  expect(check({})).not.toThrow();
  expect(check({ tableName: "a", prepare: false, unknown: undefined })).not.toThrow();
});

test("an unknown option is named with the nearest known one", () => {
  expect(check({ tablename: "a" })).toThrow(
    "tablename is not a PostgreSQL backend option: did you mean tableName?",
  );
  expect(check({ colour: "red" })).toThrow("colour is not a PostgreSQL backend option");
  expect(check({ colour: "red" })).not.toThrow("did you mean");
});

test("an InvalidArgument it is, and what is no name is not shown", () => {
  expect(check({ poolsize: null })).toThrow(
    expect.objectContaining({ name: "LockError", code: "InvalidArgument" }),
  );
  expect(check({ "postgres://app:secret@host/app": 1 })).toThrow("a name that is given is not a");
});

test.each([
  ["table_name", "tableName"],
  ["poolsSize", "poolSize"],
  ["fenceTable", "fenceTableName"],
  ["perpare", "prepare"],
  ["toString", undefined],
  ["", undefined],
  ["x".repeat(1000), undefined],
])("%s is taken for %s", (name, expected) => {
  expect(nearest(name, known)).toBe(expected);
});

import type { FirestoreConnectionOptions } from "./types.js";
import { invalid } from "../options/validation.js";

/**
 * The database that a `firestore:` URL names: `firestore://project` or `firestore://project/database`; `firestore:` leaves
 * it to the environment, as credentials always are.
 *
 * @throws LockError `InvalidArgument`
 */
export function connectionOfUrl(url: string): FirestoreConnectionOptions {
  const match = /^firestore:(?:\/\/([^/?#@]+)(?:\/([^/?#@]+))?)?$/i.exec(url);
  if (match === null) throw invalid("a firestore URL is firestore://project/database");
  const [, projectId, databaseId] = match;
  return { projectId, databaseId };
}

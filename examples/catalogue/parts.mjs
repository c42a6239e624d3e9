/** The files of the catalogue. */
export const PARTS = ["books", "films", "games", "songs"];

// The stores, as the page calls them.

export const STORES = {
  redis: "Redis",
  postgres: "PostgreSQL",
  firestore: "Firestore emulator",
};

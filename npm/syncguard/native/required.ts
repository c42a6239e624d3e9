/** Imported by entry points: whoever is on a platform without a binary learns of it then, and not at night. */

import { addon } from "./addon.js";

addon();

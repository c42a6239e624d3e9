/** Loads the addon. Entry points import this, so that a missing binary is noticed at the start and not at night. */

import { addon } from "./addon.js";

addon();

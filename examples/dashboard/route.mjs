// Next.js: app/locks/route.js

import { dashboard } from "./dashboard.mjs";

export const dynamic = "force-dynamic";
export { dashboard as GET, dashboard as POST };

/** `syncguard/dashboard`: a page that shows the locks of a store as they are now. */

export { createDashboard } from "./dashboard/dashboard.js";
export type { Dashboard, DashboardOptions } from "./dashboard/dashboard.js";

// Native code is loaded by Node.js, not bundled.
export default { serverExternalPackages: ["syncguard"] };

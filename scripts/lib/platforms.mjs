// The platforms that get a package with a binary, in napi's words, and how each is built.

/** The oldest glibc that binaries are linked for. Node.js 20 itself needs 2.28. */
export const OLDEST_GLIBC = "2.17";

/** Platforms by their names: Rust's name for the target. */
export const PLATFORMS = {
  "linux-x64-gnu": "x86_64-unknown-linux-gnu",
  "linux-arm64-gnu": "aarch64-unknown-linux-gnu",
  "linux-x64-musl": "x86_64-unknown-linux-musl",
  "linux-arm64-musl": "aarch64-unknown-linux-musl",
  "darwin-x64": "x86_64-apple-darwin",
  "darwin-arm64": "aarch64-apple-darwin",
  "win32-x64-msvc": "x86_64-pc-windows-msvc",
};

/** Whether a version, such as 2.17, comes before another. */
export function isOlderThan(version, other = "0") {
  const [major, minor = 0] = version.split(".").map(Number);
  const [otherMajor, otherMinor = 0] = other.split(".").map(Number);
  return major < otherMajor || (major === otherMajor && minor < otherMinor);
}

/**
 * How the addon for a platform is built for a release: cargo's arguments, and variables. On Linux it is linked by zig,
 * against the symbols of an old glibc or of musl, whatever the machine has.
 */
export function releaseBuild(platform) {
  const target = PLATFORMS[platform];
  if (target === undefined) {
    throw new Error(`${platform} is none of ${Object.keys(PLATFORMS).join(", ")}`);
  }
  const isGlibc = target.endsWith("-gnu");
  const command = target.includes("-linux-") ? "zigbuild" : "build";
  return {
    target,
    library: libraryOf(target),
    args: [
      ...[command, "--release", "--locked", "--package", "syncguard-node"],
      ...["--target", isGlibc ? `${target}.${OLDEST_GLIBC}` : target],
    ],
    // A library cannot be loaded into Node.js with a musl of its own.
    env: target.endsWith("-musl") ? { RUSTFLAGS: "-C target-feature=-crt-static" } : {},
  };
}

function libraryOf(target) {
  if (target.includes("-windows-")) return "syncguard_node.dll";
  return target.includes("-apple-") ? "libsyncguard_node.dylib" : "libsyncguard_node.so";
}

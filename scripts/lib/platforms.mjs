// The platforms that get a package with a binary, in napi's words: what is in their packages, and how the binaries are built.

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

const LIBRARIES = { gnu: "glibc", musl: "musl" };

/** The manifest of a platform's package, for any name such as `linux-arm64-musl`; `own` is that of `syncguard`. */
export function platformManifest(platform, own) {
  const [os, cpu, library] = platform.split("-");
  const libc = os === "linux" ? LIBRARIES[library] : undefined;
  const main = `syncguard.${platform}.node`;
  return {
    name: `syncguard-${platform}`,
    version: own.version,
    description: `The native part of syncguard for ${[os, cpu, libc].filter(Boolean).join(", ")}`,
    license: own.license,
    // Provenance is refused for a package that names another repository than the one it is built in.
    repository: own.repository,
    main,
    files: [main],
    os: [os],
    cpu: [cpu],
    ...(libc ? { libc: [libc] } : {}),
    engines: own.engines,
  };
}

/** Whether a version, such as 2.17, comes before another. */
export function isOlderThan(version, other = "0") {
  return version.localeCompare(other, "en", { numeric: true }) < 0;
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
    args: [
      ...[command, "--release", "--locked", "--package", "syncguard-node"],
      ...["--target", isGlibc ? `${target}.${OLDEST_GLIBC}` : target],
    ],
    // A library cannot be loaded into Node.js with a musl of its own.
    env: target.endsWith("-musl") ? { RUSTFLAGS: "-C target-feature=-crt-static" } : {},
  };
}

/** The file that cargo makes of the addon for a platform. */
export function libraryOf(platform) {
  if (platform.startsWith("win32-")) return "syncguard_node.dll";
  return platform.startsWith("darwin-") ? "libsyncguard_node.dylib" : "libsyncguard_node.so";
}

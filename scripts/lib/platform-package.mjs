// The package that carries the addon for a platform: from its folder under npm/, or made up for a
// platform that has none there yet.

const SYSTEMS = { darwin: "macOS", linux: "Linux", win32: "Windows", freebsd: "FreeBSD" };
const LIBRARIES = { gnu: "glibc", musl: "musl" };

/** The manifest for a platform in napi's words, such as `linux-arm64-musl`. */
export function platformManifest(platform, { version, license, repository, engines }) {
  const [os, cpu, library] = platform.split("-");
  if (!os || !cpu) throw new Error(`npm/${platform} is not named after a platform`);
  const libc = os === "linux" ? LIBRARIES[library] : undefined;
  const binary = `syncguard.${platform}.node`;
  return {
    name: `syncguard-${platform}`,
    version,
    description: `The native part of syncguard for ${describe(os, cpu, libc)}`,
    license,
    // Provenance is refused for a package that names another repository than the one it is built in.
    repository,
    main: binary,
    files: [binary],
    os: [os],
    cpu: [cpu],
    ...(libc ? { libc: [libc] } : {}),
    engines,
  };
}

/** Its README. */
export function platformReadme({ name, os: [os], cpu: [cpu], libc: [libc] = [] }) {
  return `# ${name}

The native part of [syncguard](https://www.npmjs.com/package/syncguard) for ${describe(os, cpu, libc)}. It is
installed with \`syncguard\` and is of no use alone.
`;
}

function describe(os, cpu, libc) {
  return `${cpu} ${SYSTEMS[os] ?? os}${libc ? ` with ${libc}` : ""}`;
}

/** What a backend can do. */
export interface BackendCapabilities {
  /** Whether each acquisition comes with a fencing token. */
  supportsFencing: boolean;
  /** Whose clock decides when a lock ends. */
  timeAuthority: "server" | "client";
}

/** The capabilities of a backend with fencing tokens. */
export interface FencingCapabilities extends BackendCapabilities {
  /** Each acquisition comes with a fencing token. */
  supportsFencing: true;
}

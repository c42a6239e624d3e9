/**
 * Hears from clients that are driven what becomes of their connections. What is held over a client is asked after once it has a
 * connection again after it has lost one.
 */

import type { Store } from "../native/store.js";

type Event = string | symbol;

/** That a client has lost a connection; that it has one; or that one of several is there in the place of a former one. */
type Sign = "lost" | "made" | "replaced";

/** What the events of a kind of client show, or how to read what comes with them. */
export type ConnectionEvents = Readonly<
  Record<Event, Sign | ((subject: unknown, show: (sign: Sign) => void, client: object) => void)>
>;

type Listener = (subject: unknown) => void;
type Emitter = { readonly [Name in "on" | "off"]: (event: Event, listener: Listener) => unknown };

/** The clients at which one listener stays. */
const staying = new WeakSet();
const STAYS = Symbol("syncguard");

/**
 * Leaves a listener for what never happens at an object that inherits from an emitter, as node-redis gives them out. With the last
 * listener, Node.js would part the two, and whoever listens later would hear of no error.
 */
function stay(client: Emitter): void {
  if (!("_events" in client) || Object.hasOwn(client, "_events") || staying.has(client)) return;
  staying.add(client);
  client.on(STAYS, () => undefined);
}

/** The listeners of each client. All stores over it share them, because emitters warn of many. */
const listening = new WeakMap<object, Listeners>();

/** Tells a store what the client shows that it drives, until it is closed. */
export function hearing(store: Store, client: object, events: ConnectionEvents): Store {
  if (!isEmitter(client)) return store;
  const listeners = listening.get(client) ?? new Listeners(client, events);
  const forget = listeners.tell(store);
  const close = store.close.bind(store);
  store.close = async () => {
    forget();
    await close();
  };
  return store;
}

function isEmitter(client: object): client is Emitter {
  const { on, off } = client as Partial<Emitter>;
  return typeof on === "function" && typeof off === "function";
}

class Listeners {
  /** The references are weak, because the client may live longer than a store that nobody closes. */
  private readonly stores = new Set<WeakRef<Store>>();
  private readonly byEvent: readonly (readonly [event: Event, listener: Listener])[];
  private isLost = false;

  constructor(
    private readonly client: Emitter,
    events: ConnectionEvents,
  ) {
    const show = (sign: Sign): void => this.show(sign);
    this.byEvent = Reflect.ownKeys(events).map((event) => {
      const sign = events[event] as ConnectionEvents[Event];
      return [
        event,
        typeof sign === "string" ? () => show(sign) : (subject) => sign(subject, show, client),
      ];
    });
    for (const [event, listener] of this.byEvent) client.on(event, listener);
    listening.set(client, this);
    stay(client);
  }

  /** Tells `store` until the function is called that this gives. */
  tell(store: Store): () => void {
    const reference = new WeakRef(store);
    this.stores.add(reference);
    return () => this.forget(reference);
  }

  private show(sign: Sign): void {
    // A pool says that it has one whenever one of its connections is used.
    if (sign === "made" && !this.isLost) return;
    if (sign !== "made") this.note(true);
    if (sign !== "lost") this.note(false);
  }

  private note(isLost: boolean): void {
    this.isLost = isLost;
    for (const reference of this.stores) {
      const store = reference.deref();
      if (store === undefined) this.forget(reference);
      else store.clientIsConnected(!isLost);
    }
  }

  private forget(reference: WeakRef<Store>): void {
    this.stores.delete(reference);
    if (this.stores.size > 0) return;
    for (const [event, listener] of this.byEvent) this.client.off(event, listener);
    if (listening.get(this.client) === this) listening.delete(this.client);
  }
}

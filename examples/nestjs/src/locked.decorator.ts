// A decorator for methods of providers and controllers, in place of a call of `LockService.run()`.

import { Inject } from "@nestjs/common";
import type { LockHandle } from "syncguard";
import { LockService } from "./lock.module.js";

type Method<A extends unknown[], R> = (...args: [...A, handle: LockHandle]) => Promise<R>;

/** Runs a method under the lock that `key` makes of its arguments. The handle comes after them. */
export function Locked<A extends unknown[]>(key: (...args: A) => string) {
  return <R>(
    target: object,
    _name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method<A, R>>,
  ): void => {
    Inject(LockService)(target, "lockService");
    const method = descriptor.value;
    if (method === undefined) throw new TypeError("@Locked() stands before a method");
    const locked = function (this: { lockService: LockService }, ...args: A): Promise<R> {
      return this.lockService.run(key(...args), (handle) => method.apply(this, [...args, handle]));
    };
    descriptor.value = locked as unknown as Method<A, R>;
  };
}

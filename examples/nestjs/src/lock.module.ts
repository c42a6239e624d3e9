// Locks for a NestJS application: import `LockModule.forRoot()` once, and inject `LockService`.

import {
  type ArgumentsHost,
  Catch,
  type DynamicModule,
  type ExceptionFilter,
  Inject,
  Injectable,
  Module,
  type OnModuleDestroy,
} from "@nestjs/common";
import { APP_FILTER } from "@nestjs/core";
import type { Response } from "express";
import { lock, LockError, type LockHandle } from "syncguard";

export type LockModuleOptions = {
  /** Milliseconds after which the lock of a process that died is free. Default 10000. */
  ttlMs?: number;
  /** Milliseconds to wait for a lock. Default 2000. */
  timeoutMs?: number;
};

const OPTIONS = Symbol("LockModuleOptions");

@Injectable()
export class LockService implements OnModuleDestroy {
  readonly #stopping = new AbortController();

  constructor(@Inject(OPTIONS) private readonly options: LockModuleOptions) {}

  /** Runs `work` while nobody else has the lock on `key`. Its `signal` is aborted when the lock is lost. */
  async run<T>(key: string, work: (handle: LockHandle) => Promise<T>): Promise<T> {
    const { ttlMs = 10_000, timeoutMs = 2_000 } = this.options;
    return await lock(work, {
      key,
      ttlMs,
      autoExtend: true,
      acquisition: { timeoutMs, signal: this.#stopping.signal },
    });
  }

  /** While the application ends, nobody waits for a lock. Who holds one finishes. */
  onModuleDestroy(): void {
    this.#stopping.abort();
  }
}

/** A lock that was not to be had, or was lost, is no defect of the server: the client may try again. */
@Catch(LockError)
export class LockErrorFilter implements ExceptionFilter<LockError> {
  catch(error: LockError, host: ArgumentsHost): void {
    const response = host.switchToHttp().getResponse<Response>();
    response.status(503).header("Retry-After", "1").json({ statusCode: 503, error: error.code });
  }
}

@Module({})
export class LockModule {
  static forRoot(options: LockModuleOptions = {}): DynamicModule {
    return {
      module: LockModule,
      global: true,
      providers: [
        { provide: OPTIONS, useValue: options },
        { provide: APP_FILTER, useClass: LockErrorFilter },
        LockService,
      ],
      exports: [LockService],
    };
  }
}

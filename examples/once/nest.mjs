// @nestjs/schedule. In TypeScript, `@OnceCron("* * * * * *", "report", 1_000)` stands before a method, in place of `@Cron(…)`.

import "reflect-metadata";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Cron, ScheduleModule } from "@nestjs/schedule";

/** Runs a method once in each period of `everyMs`, on whichever machine comes first. The backend is a member of its class. */
export function OnceCron(pattern, name, everyMs) {
  return (target, property, descriptor) => {
    const method = descriptor.value;
    descriptor.value = async function () {
      const due = Math.floor(Date.now() / everyMs);
      const options = { due, ttlMs: 60_000, autoExtend: true };
      const run = await this.backend.once(name, options, (handle) =>
        method.call(this, handle, due),
      );
      if (!run.ran && run.reason === "ahead") console.log(name, due, "is before", run.lastDue);
    };
    Cron(pattern, { name })(target, property, descriptor);
  };
}

/** An application with such a method, which calls `job`. */
export async function startNest(backend, name, pattern, everyMs, job) {
  class Reports {
    backend = backend;
    run(handle, due) {
      return job(handle, due);
    }
  }
  const method = Object.getOwnPropertyDescriptor(Reports.prototype, "run");
  OnceCron(pattern, name, everyMs)(Reports.prototype, "run", method);
  Object.defineProperty(Reports.prototype, "run", method);

  const App = class App {
    name = name;
  };
  Module({ imports: [ScheduleModule.forRoot()], providers: [Reports] })(App);
  return await NestFactory.createApplicationContext(App, { logger: ["error", "warn"] });
}

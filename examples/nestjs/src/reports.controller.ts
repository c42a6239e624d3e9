// Makes a report, which only one process does at a time for each month.

import { setTimeout as sleep } from "node:timers/promises";
import { Controller, Param, Post, Query } from "@nestjs/common";
import { LockError, type LockHandle } from "syncguard";
import { LockService } from "./lock.module.js";
import { Locked } from "./locked.decorator.js";

export type Report = { month: string; fence: string };

@Controller("reports")
export class ReportsController {
  constructor(private readonly locks: LockService) {}

  @Post(":month")
  async make(@Param("month") month: string, @Query("takesMs") takesMs = "20"): Promise<Report> {
    return await this.locks.run(`report:${month}`, async ({ fence, signal }) => {
      try {
        await sleep(Number(takesMs), undefined, { signal }); // the work, which ends when the lock is lost
      } catch (error) {
        // Node's own functions wrap the signal's reason.
        throw (error as Error).cause instanceof LockError ? (error as Error).cause : error;
      }
      // What is written goes with the fence: whoever stores it refuses smaller ones.
      return { month, fence };
    });
  }

  // Under the lock of the report, so that nobody mails a report that is being made.
  @Post(":month/mail")
  @Locked((month: string) => `report:${month}`)
  async mail(@Param("month") month: string, handle?: LockHandle): Promise<Report> {
    handle?.signal.throwIfAborted();
    return { month, fence: handle?.fence ?? "" };
  }
}

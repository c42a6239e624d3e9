import "reflect-metadata";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { LockModule } from "./lock.module.js";
import { ReportsController } from "./reports.controller.js";

@Module({
  imports: [LockModule.forRoot({ timeoutMs: 2_000 })],
  controllers: [ReportsController],
})
class AppModule {}

async function start(): Promise<void> {
  const app = await NestFactory.create(AppModule);
  // On SIGTERM: `onModuleDestroy`, then requests under way are answered, then the process ends.
  app.enableShutdownHooks();
  await app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1");
  console.log(`listening on ${await app.getUrl()}`);
}

void start();

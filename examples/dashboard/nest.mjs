import "reflect-metadata";
import { Module } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { dashboard } from "./dashboard.mjs";

class AppModule {
  name = "a service";
}
Module({})(AppModule);
const app = await NestFactory.create(AppModule, { logger: ["error", "warn"] });

app.use("/locks", dashboard.node);

await app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
console.log(`listening on ${await app.getUrl()}/locks`);
process.once("SIGTERM", () => void app.close());

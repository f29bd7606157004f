import { expect, test } from "vitest";
import { serverName } from "./servers";

test("servers have their proper names", () => {
  expect(["postgres", "nats", "jetstream", "redis"].map(serverName)).toEqual([
    "Postgres",
    "NATS",
    "JetStream",
    "redis",
  ]);
});

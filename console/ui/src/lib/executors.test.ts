import { expect, test } from "vitest";
import { serversFrom } from "./executors";

test("a loopback address is that of the console's host", () => {
  const of = (url: string, host = "belfry.example.com") => serversFrom({ url, tls: false }, host).url;
  expect(of("nats://127.0.0.1:4333")).toBe("nats://belfry.example.com:4333");
  expect(of("nats://localhost:4222,nats://[::1]:4223")).toBe(
    "nats://belfry.example.com:4222,nats://belfry.example.com:4223",
  );
  expect(of("tls://localhost.example.com:4222")).toBe("tls://localhost.example.com:4222");
  expect(of("nats://10.0.0.7:4222")).toBe("nats://10.0.0.7:4222");
  expect(of("nats://127.0.0.1:4222", "127.0.0.1")).toBe("nats://127.0.0.1:4222");
});

test("without an address, it is the usual port of the console's host", () => {
  expect(serversFrom(undefined, "host")).toEqual({ url: "nats://host:4222", tls: false });
  expect(serversFrom({ url: "", tls: false }, "host").url).toBe("nats://host:4222");
});

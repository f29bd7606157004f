import { expect, test } from "vitest";
import { applyCommand, putCommand } from "./jobcommands";

test("a here-document ends with a word that the job does not contain", () => {
  expect(applyCommand("name: a\n", "https://b.example.com")).toBe(
    "BELFRY_SERVER=https://b.example.com belfry job apply -f - <<'END'\nname: a\nEND",
  );
  expect(applyCommand("a\nEND\nb\n", "s")).toContain("<<'END_'\na\nEND\nb\nEND_");
});

test("the request has all fields except the version", () => {
  const job = { group: "g", name: "it's", handler: "h", schedule: { kind: "none" as const }, version: 3 };
  const command = putCommand(7, job, "https://b.example.com");
  expect(command).toContain("https://b.example.com/api/v1/jobs/7");
  expect(command).toContain(`"name": "it's"`);
  expect(command).not.toContain("version");
});

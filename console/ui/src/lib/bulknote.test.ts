import { expect, test } from "vitest";
import { fill, type Translate } from "../i18n";
import { zh } from "../i18n/zh";
import { bulkNote } from "./bulknote";

const t = ((key, values) => fill(zh[key], values)) as Translate;

test("a note is the server's in English, and names its case in Chinese", () => {
  expect(bulkNote(t, "en", { state: "stopped", note: "stopped by mei" })).toBe("stopped by mei");
  for (const state of ["waiting", "running", "done", "stopped", "failed"] as const) {
    const note = bulkNote(t, "zh", { state, note: "an English note" });
    expect(note).toMatch(/[\u4e00-\u9fff]/);
    expect(note).not.toMatch(/[a-z]/i);
    expect(bulkNote(t, "zh", { state, note: "" })).toBe("");
  }
});

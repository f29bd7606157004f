import { expect, test } from "vitest";
import { webAddress } from "./webaddress";

test("only addresses of the web become links", () => {
  expect(webAddress("https://wiki.example.com/runbooks/7?a=b#c")).toBe("https://wiki.example.com/runbooks/7?a=b#c");
  expect(webAddress("http://wiki/7")).toBe("http://wiki/7");
  for (const bad of [
    undefined,
    "",
    "wiki/7",
    "javascript:alert(1)",
    " JavaScript:alert(1)",
    "data:text/html,x",
    "file:///etc",
  ])
    expect(webAddress(bad)).toBeUndefined();
});

// Tests of the web console in Chromium, for properties of all pages, such as accessibility, widths and translations. The variables
// are those of browser.test.mjs.
import { markup } from "./browser/markup.mjs";
import { pages } from "./browser/pages.mjs";
import { phones } from "./browser/phones.mjs";
import { onStage } from "./browser/stage.mjs";
import { terms } from "./browser/terms.mjs";
import { widths } from "./browser/widths.mjs";

onStage({ identities: true }, pages, markup, widths, phones, terms);

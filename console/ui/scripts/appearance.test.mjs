// Tests of the web console in Chromium, for properties of all pages, such as accessibility, widths and translations. The variables
// are those of browser.test.mjs.
import { lists } from "./browser/lists.mjs";
import { markup } from "./browser/markup.mjs";
import { messages } from "./browser/messages.mjs";
import { pages } from "./browser/pages.mjs";
import { onStage } from "./browser/stage.mjs";
import { widths } from "./browser/widths.mjs";

onStage(pages, markup, messages, widths, lists);

// Tests of the web console in Chromium for people on call: live updates, lost executors, a gateway, what needs attention, missing
// servers. The variables are those of browser.test.mjs.
import { attention } from "./browser/attention.mjs";
import { focus } from "./browser/focus.mjs";
import { lists } from "./browser/lists.mjs";
import { messages } from "./browser/messages.mjs";
import { outages } from "./browser/outages.mjs";
import { onStage } from "./browser/stage.mjs";
import { xxljob } from "./browser/xxljob.mjs";

onStage({ flags: ["--gateway", "127.0.0.1:0"] }, lists, messages, xxljob, focus, attention, outages);

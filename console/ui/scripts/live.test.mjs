// Tests of the web console in Chromium that wait most of their time: live updates, lost executors, a gateway. The variables are
// those of browser.test.mjs.
import { lists } from "./browser/lists.mjs";
import { messages } from "./browser/messages.mjs";
import { onStage } from "./browser/stage.mjs";
import { xxljob } from "./browser/xxljob.mjs";

onStage({ flags: ["--gateway", "127.0.0.1:0"] }, lists, messages, xxljob);

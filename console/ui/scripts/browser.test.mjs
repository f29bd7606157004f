// Tests of the web console in Chromium, for the actions of users. appearance.test.mjs tests the properties of all pages.
// BELFRY is the binary, and PROVIDER that of the identity provider; without them, the tests build them. CHROMIUM is the
// browser. A failed scene saves a screenshot below BELFRY_SHOTS.
import { access } from "./browser/access.mjs";
import { calendars } from "./browser/calendars.mjs";
import { changes } from "./browser/changes.mjs";
import { drafts } from "./browser/drafts.mjs";
import { events } from "./browser/events.mjs";
import { executors } from "./browser/executors.mjs";
import { jobs } from "./browser/jobs.mjs";
import { plain } from "./browser/plain.mjs";
import { runs } from "./browser/runs.mjs";
import { onStage } from "./browser/stage.mjs";

onStage({ identities: true }, access, jobs, runs, changes, calendars, drafts, events, plain, executors);

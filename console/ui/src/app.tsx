import { Center } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect } from "react";
import { Route, Switch, useLocation } from "wouter";
import { ApiError, get, whenUnauthorized } from "./api/client";
import { newCalendar } from "./lib/calendars";
import { leaveNow } from "./lib/leaving";
import { MeContext } from "./lib/me";
import { ErrorNote } from "./parts/basics";
import { For } from "./parts/refused";
import { Shell } from "./parts/shell";
import { Skeletons } from "./parts/skeletons";
import { LogIn, MustChange } from "./pages/login";
import { NotFound } from "./pages/notfound";

const Overview = lazy(() => import("./pages/overview"));
const Jobs = lazy(() => import("./pages/jobs"));
const JobForm = lazy(() => import("./pages/jobform"));
const JobPage = lazy(() => import("./pages/job"));
const Runs = lazy(() => import("./pages/runs"));
const RunPage = lazy(() => import("./pages/run"));
const BulkActions = lazy(() => import("./pages/bulk"));
const BulkActionPage = lazy(() => import("./pages/bulkaction"));
const Executors = lazy(() => import("./pages/executors"));
const Events = lazy(() => import("./pages/events"));
const Channels = lazy(() => import("./pages/channels"));
const Week = lazy(() => import("./pages/week"));
const Calendars = lazy(() => import("./pages/calendars"));
const CalendarPage = lazy(() => import("./pages/calendar"));
const System = lazy(() => import("./pages/system"));
const DeadLetters = lazy(() => import("./pages/deadletters"));
const Account = lazy(() => import("./pages/account"));
const Tokens = lazy(() => import("./pages/tokens"));
const Users = lazy(() => import("./pages/users"));
const Audit = lazy(() => import("./pages/audit"));

export function App() {
  const client = useQueryClient();
  const [path] = useLocation();
  const me = useQuery({
    queryKey: ["me"],
    queryFn: () => get("/api/v1/auth/me"),
    staleTime: 60_000,
    enabled: path !== "/login",
  });

  useEffect(() => {
    whenUnauthorized(() => {
      if (location.pathname === "/login") return;
      const back = location.pathname + location.search;
      client.clear();
      leaveNow(`/login?to=${encodeURIComponent(back)}`, { replace: true }); // a changed form has kept its draft
    });
  }, [client]);

  if (path === "/login") return <LogIn />;
  if (me.error && !(me.error instanceof ApiError && me.error.status === 401)) {
    return (
      <Center mih="100vh">
        <ErrorNote error={me.error} retry={() => me.refetch()} />
      </Center>
    );
  }
  if (!me.data)
    return (
      <div className="first-load">
        <Skeletons rows={6} />
      </div>
    );
  if (me.data.must_change_password)
    return (
      <MeContext.Provider value={me.data}>
        <MustChange />
      </MeContext.Provider>
    );
  return (
    <MeContext.Provider value={me.data}>
      <Shell>
        <Suspense fallback={<Skeletons rows={6} />}>
          <Switch>
            <Route path="/" component={Overview} />
            <Route path="/jobs" component={Jobs} />
            <Route path="/jobs/new">
              <For operators>
                <JobForm />
              </For>
            </Route>
            <Route path="/jobs/:id/edit">
              {(p) => (
                <For operators>
                  <JobForm key={p.id} id={Number(p.id)} />
                </For>
              )}
            </Route>
            <Route path="/jobs/:id">{(p) => <JobPage key={p.id} id={Number(p.id)} />}</Route>
            <Route path="/runs" component={Runs} />
            <Route path="/runs/:id">{(p) => <RunPage key={p.id} id={p.id} />}</Route>
            <Route path="/bulk" component={BulkActions} />
            <Route path="/bulk/:id">{(p) => <BulkActionPage key={p.id} id={Number(p.id)} />}</Route>
            <Route path="/week" component={Week} />
            <Route path="/calendars" component={Calendars} />
            <Route path="/calendars/:name">
              {(p) =>
                p.name === newCalendar ? (
                  <For>
                    <CalendarPage key="+" />
                  </For>
                ) : (
                  <CalendarPage key={p.name} name={decodeURIComponent(p.name)} />
                )
              }
            </Route>
            <Route path="/executors" component={Executors} />
            <Route path="/events" component={Events} />
            <Route path="/alert-channels">
              <For>
                <Channels />
              </For>
            </Route>
            <Route path="/dead-letters">
              <For>
                <DeadLetters />
              </For>
            </Route>
            <Route path="/account" component={Account} />
            <Route path="/tokens" component={Tokens} />
            <Route path="/users">
              <For>
                <Users />
              </For>
            </Route>
            <Route path="/audit">
              <For>
                <Audit />
              </For>
            </Route>
            <Route path="/system">
              <For>
                <System />
              </For>
            </Route>
            <Route>
              <NotFound />
            </Route>
          </Switch>
        </Suspense>
      </Shell>
    </MeContext.Provider>
  );
}

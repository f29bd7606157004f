package api_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/belfryhq/belfry/internal/domain"
)

// access describes the answers of a route by caller. A caller without credentials gets 401. A caller whose role is below
// least, or whose token may only send events, gets 403.
type access struct {
	path   string // below the prefix, with <names> of things in the group mine; a thing <new …> is made for each request
	least  string // viewer, operator or admin; "": everyone, also without credentials
	status int    // for callers with the rights
	hidden int    // for operators of another group; 0: status
	body   string
	header []string

	fresh  bool // the request ends the caller's log-in
	events bool // allowed for tokens that may only send events
	tokens int  // for API tokens, if their answer differs; 0: status
}

const (
	mineRef    = `{"group":"mine","name":"<unique>","handler":"echo","schedule":{"kind":"none"}}`
	mineFile   = "belfry: 1\njobs:\n  - {group: mine, name: imported, handler: echo, schedule: {kind: none}}\n"
	newChannel = `{"name":"<unique>","kind":"webhook","url":"http://127.0.0.1:1/x"}`
	march2026  = `{"from":"2026-03-01T00:00:00Z","to":"2026-03-02T00:00:00Z"}`
)

var accesses = map[string]access{
	"GET /": {least: "viewer", status: 404}, // package console serves the web console at this path

	"GET /healthz": {status: 200}, "GET /readyz": {status: 200}, "GET /metrics": {least: "viewer", status: 200},
	"GET /openapi.json": {least: "viewer", status: 200}, "GET /docs": {least: "viewer", status: 200}, "GET /docs/style.css": {least: "viewer", status: 200},

	"POST /auth/login":             {status: 200, fresh: true, body: `{"username":"admin","password":"` + adminPassword + `"}`},
	"POST /auth/logout":            {least: "viewer", status: 204, fresh: true},
	"POST /auth/logout-everywhere": {least: "viewer", status: 204, fresh: true, tokens: 403},
	"POST /auth/password":          {least: "viewer", status: 200, fresh: true, tokens: 403, body: `{"current_password":"` + adminPassword + `","new_password":"another good password"}`},
	// These paths are open, because they start a log-in. Without a provider they are 404.
	"GET /auth/methods":       {status: 200},
	"GET /auth/oidc/login":    {status: 404},
	"GET /auth/oidc/callback": {status: 404},

	"GET /auth/me":               {least: "viewer", status: 200},
	"GET /auth/sessions":         {least: "viewer", status: 200, tokens: 403},
	"DELETE /auth/sessions/{id}": {least: "viewer", status: 404, path: "/auth/sessions/999999", tokens: 403}, // only the caller's own sessions, which TestOwnSessions tests

	"GET /users":                    {least: "admin", status: 200},
	"POST /users":                   {least: "admin", tokens: 403, status: 201, body: `{"username":"<unique>","password":"a-good-password","role":"viewer","groups":["mine"]}`},
	"GET /users/{username}":         {least: "admin", status: 200, path: "/users/vera"},
	"PATCH /users/{username}":       {least: "admin", tokens: 403, status: 200, path: "/users/<new user>", body: `{"role":"operator"}`},
	"DELETE /users/{username}":      {least: "admin", tokens: 403, status: 204, path: "/users/<new user>"},
	"POST /users/{username}/logout": {least: "admin", tokens: 403, status: 204, path: "/users/<new user>/logout"},
	"GET /tokens":                   {least: "viewer", status: 200},
	"POST /tokens":                  {least: "viewer", status: 201, body: `{"name":"<unique>"}`},
	"DELETE /tokens/{id}":           {least: "viewer", status: 204, path: "/tokens/<new token>"},
	"GET /audit":                    {least: "admin", status: 200},
	"GET /system":                   {least: "admin", status: 200},

	"GET /groups":                              {least: "viewer", status: 200},
	"POST /groups":                             {least: "admin", status: 201, body: `{"name":"<unique>"}`},
	"GET /groups/{name}":                       {least: "viewer", status: 200, hidden: 404, path: "/groups/mine"},
	"GET /groups/{name}/usage":                 {least: "viewer", status: 200, hidden: 404, path: "/groups/mine/usage"},
	"PATCH /groups/{name}":                     {least: "admin", status: 200, path: "/groups/mine", body: `{"description":"d"}`},
	"DELETE /groups/{name}":                    {least: "admin", status: 204, path: "/groups/<new group>"},
	"POST /groups/{name}/token":                {least: "admin", status: 200, path: "/groups/mine/token"},
	"POST /groups/{name}/pause":                {least: "operator", status: 200, hidden: 404, path: "/groups/mine/pause", body: `{"reason":"r"}`},
	"POST /groups/{name}/resume":               {least: "operator", status: 200, hidden: 404, path: "/groups/<paused group>/resume"},
	"GET /groups/{name}/instances":             {least: "viewer", status: 200, hidden: 404, path: "/groups/mine/instances"},
	"GET /groups/{name}/wire-ids":              {least: "viewer", status: 200, hidden: 404, path: "/groups/mine/wire-ids"},
	"PUT /groups/{name}/wire-ids/{wire_id}":    {least: "operator", status: 204, hidden: 404, path: "/groups/mine/wire-ids/7", body: `{"job_id":<job>}`},
	"GET /groups/{name}/xxl-job":               {least: "viewer", status: 404, hidden: 404, path: "/groups/mine/xxl-job"},
	"PUT /groups/{name}/xxl-job":               {least: "admin", status: 200, path: "/groups/mine/xxl-job", body: `{"generate":true}`},
	"POST /groups/{name}/instances/{id}/drain": {least: "operator", status: 202, hidden: 404, path: "/groups/mine/instances/one/drain"},

	"GET /jobs":                                 {least: "viewer", status: 200},
	"POST /jobs":                                {least: "operator", status: 201, hidden: 422, body: mineRef},
	"GET /jobs/{id}":                            {least: "viewer", status: 200, hidden: 404, path: "/jobs/<job>"},
	"PUT /jobs/{id}":                            {least: "operator", status: 200, hidden: 404, path: "/jobs/<new job>", body: mineRef},
	"PATCH /jobs/{id}":                          {least: "operator", status: 200, hidden: 404, path: "/jobs/<job>", body: `{"author":"a"}`},
	"DELETE /jobs/{id}":                         {least: "operator", status: 204, hidden: 404, path: "/jobs/<new job>"},
	"POST /jobs/{id}/enable":                    {least: "operator", status: 200, hidden: 404, path: "/jobs/<job>/enable"},
	"POST /jobs/{id}/disable":                   {least: "operator", status: 200, hidden: 404, path: "/jobs/<new job>/disable"},
	"POST /jobs/{id}/pause":                     {least: "operator", status: 200, hidden: 404, path: "/jobs/<job>/pause", body: `{"reason":"r"}`},
	"POST /jobs/{id}/resume":                    {least: "operator", status: 200, hidden: 404, path: "/jobs/<paused job>/resume"},
	"POST /jobs/{id}/trigger":                   {least: "operator", status: 202, hidden: 404, path: "/jobs/<job>/trigger"},
	"POST /jobs/{id}/backfill":                  {least: "operator", status: 202, hidden: 404, path: "/jobs/<daily>/backfill", body: march2026},
	"GET /jobs/{id}/next":                       {least: "viewer", status: 200, hidden: 404, path: "/jobs/<job>/next"},
	"GET /jobs/{id}/missed":                     {least: "viewer", status: 200, hidden: 404, path: "/jobs/<job>/missed"},
	"GET /jobs/{id}/why":                        {least: "viewer", status: 200, hidden: 404, path: "/jobs/<job>/why?at=2026-03-01T00:00:00Z"},
	"GET /jobs/{id}/scripts":                    {least: "viewer", status: 200, hidden: 404, path: "/jobs/<script>/scripts"},
	"POST /jobs/{id}/scripts":                   {least: "operator", status: 201, hidden: 404, path: "/jobs/<script>/scripts", body: `{"language":"sh","code":"echo <unique>"}`},
	"GET /jobs/{id}/scripts/{version}":          {least: "viewer", status: 200, hidden: 404, path: "/jobs/<script>/scripts/1"},
	"POST /jobs/{id}/scripts/{version}/restore": {least: "operator", status: 201, hidden: 404, path: "/jobs/<script>/scripts/1/restore"},
	"POST /schedules/preview":                   {least: "viewer", status: 200, body: `{"schedule":{"kind":"none"}}`},
	"GET /upcoming":                             {least: "viewer", status: 200, hidden: 422, path: "/upcoming?group=mine"},
	"GET /calendar":                             {least: "viewer", status: 200, hidden: 422, path: "/calendar?group=mine&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z"},
	"GET /calendar/jobs":                        {least: "viewer", status: 200, hidden: 422, path: "/calendar/jobs?group=mine&from=2026-11-01T00:00:00Z&to=2026-11-02T00:00:00Z"},
	"GET /calendars":                            {least: "viewer", status: 200},
	"POST /calendars":                           {least: "admin", status: 201, body: `{"name":"<unique>"}`},
	"GET /calendars/{name}":                     {least: "viewer", status: 200, path: "/calendars/<calendar>"},
	"PUT /calendars/{name}":                     {least: "admin", status: 200, path: "/calendars/<calendar>", body: `{"weekdays":["sunday"]}`},
	"DELETE /calendars/{name}":                  {least: "admin", status: 204, path: "/calendars/<new calendar>"},
	"GET /audit/fires":                          {least: "viewer", status: 200, hidden: 422, path: "/audit/fires?job_id=<job>"},

	"GET /runs":                 {least: "viewer", status: 200, hidden: 422, path: "/runs?group=mine&state=retrying"},
	"GET /runs/stream":          {least: "viewer", status: 200, hidden: 422, path: "/runs/stream?group=mine"},
	"GET /runs/{id}":            {least: "viewer", status: 200, hidden: 404, path: "/runs/<run>"},
	"POST /runs/{id}/kill":      {least: "operator", status: 202, hidden: 404, path: "/runs/<run>/kill"},
	"POST /runs/{id}/retry":     {least: "operator", status: 202, hidden: 404, path: "/runs/<new ended run>/retry", body: `{"param":"x"}`},
	"GET /runs/{id}/shards":     {least: "viewer", status: 200, hidden: 404, path: "/runs/<run>/shards"},
	"GET /runs/{id}/children":   {least: "viewer", status: 200, hidden: 404, path: "/runs/<run>/children"},
	"GET /runs/{id}/log":        {least: "viewer", status: 200, hidden: 404, path: "/runs/<run>/log"},
	"GET /runs/{id}/log.txt":    {least: "viewer", status: 200, hidden: 404, path: "/runs/<run>/log.txt"},
	"GET /runs/{id}/log/stream": {least: "viewer", status: 200, hidden: 404, path: "/runs/<run>/log/stream"},
	"POST /runs/bulk":           {least: "operator", status: 202, hidden: 422, body: `{"action":"kill","filter":{"group":"mine","state":"retrying"}}`},

	"GET /bulk":         {least: "viewer", status: 200},
	"GET /bulk/{id}":    {least: "viewer", status: 200, hidden: 404, path: "/bulk/<bulk>"},
	"DELETE /bulk/{id}": {least: "operator", status: 200, hidden: 404, path: "/bulk/<bulk>"},

	"GET /attention":                   {least: "viewer", status: 200},
	"GET /search":                      {least: "viewer", status: 200, path: "/search?q=a"},
	"GET /tags":                        {least: "viewer", status: 200},
	"POST /attention/{id}/acknowledge": {least: "operator", status: 200, hidden: 404, path: "/attention/group_without_executors:mine/acknowledge", body: `{"note":"n"}`},

	"GET /overview":        {least: "viewer", status: 200, hidden: 422, path: "/overview?group=mine"},
	"GET /overview/stream": {least: "viewer", status: 200, hidden: 422, path: "/overview/stream?group=mine"},
	"GET /reports/runs":    {least: "viewer", status: 200, hidden: 422, path: "/reports/runs?group=mine"},

	"GET /events":                 {least: "viewer", status: 200},
	"POST /events/{name}":         {least: "operator", status: 202, path: "/events/something", body: `{}`, events: true},
	"GET /events/{name}":          {least: "viewer", status: 200, path: "/events/something"},
	"GET /event-triggers":         {least: "viewer", status: 200, hidden: 422, path: "/event-triggers?group=mine&name=none"},
	"POST /event-triggers":        {least: "operator", status: 201, hidden: 422, body: `{"name":"a","job_id":<job>}`},
	"GET /event-triggers/{id}":    {least: "viewer", status: 200, hidden: 404, path: "/event-triggers/<trigger>"},
	"PUT /event-triggers/{id}":    {least: "operator", status: 200, hidden: 404, path: "/event-triggers/<trigger>", body: `{"name":"b","job_id":<job>}`},
	"PATCH /event-triggers/{id}":  {least: "operator", status: 200, hidden: 404, path: "/event-triggers/<trigger>", body: `{"enabled":false}`},
	"DELETE /event-triggers/{id}": {least: "operator", status: 204, hidden: 404, path: "/event-triggers/<new trigger>"},

	"GET /export":  {least: "viewer", status: 200, hidden: 422, path: "/export?group=mine"},
	"POST /import": {least: "operator", status: 200, hidden: 422, body: mineFile, header: []string{"Content-Type", "application/yaml"}},

	"GET /alerts":                      {least: "viewer", status: 200},
	"GET /alert-channels":              {least: "admin", status: 200},
	"POST /alert-channels":             {least: "admin", status: 201, body: newChannel},
	"GET /alert-channels/{name}":       {least: "admin", status: 200, path: "/alert-channels/<channel>"},
	"PUT /alert-channels/{name}":       {least: "admin", status: 200, path: "/alert-channels/<channel>", body: `{"kind":"webhook","url":"http://127.0.0.1:1/x"}`},
	"PATCH /alert-channels/{name}":     {least: "admin", status: 200, path: "/alert-channels/<channel>", body: `{"language":"zh"}`},
	"DELETE /alert-channels/{name}":    {least: "admin", status: 204, path: "/alert-channels/<new channel>"},
	"POST /alert-channels/{name}/test": {least: "admin", status: 200, path: "/alert-channels/<channel>/test"},
	"GET /dead-letters":                {least: "admin", status: 200},
	"GET /dead-letters/{seq}":          {least: "admin", status: 200, path: "/dead-letters/1"},
	"DELETE /dead-letters/{seq}":       {least: "admin", status: 204, path: "/dead-letters/<letter>"},
	"POST /dead-letters/{seq}/replay":  {least: "admin", status: 202, path: "/dead-letters/<letter>/replay"},
}

// cast holds the callers, and the resources in the group mine.
type cast struct {
	*world
	callers map[string]string // tokens by name
	roles   map[string]string
	ended   map[string]bool // callers whose tokens are not valid any more
	things  map[string]string
	made    int
	asked   int
	letter  uint64
}

func newCast(t *testing.T) *cast {
	w := newWorld(t)
	c := &cast{world: w, callers: map[string]string{"nobody": "", "admin": w.admin}, things: map[string]string{},
		roles: map[string]string{"nobody": "", "admin": "admin", "operator": "operator", "viewer": "viewer", "stranger": "operator", "reading token": "viewer", "sending token": "operator"},
		ended: map[string]bool{}}
	for _, group := range []string{"mine", "other"} {
		w.must(201, "POST", "/api/v1/groups", `{"name":"`+group+`"}`)
	}
	for caller, who := range map[string][3]string{"operator": {"olga", "operator", "mine"}, "viewer": {"vera", "viewer", "mine"}, "stranger": {"sam", "operator", "other"}} {
		c.callers[caller] = c.login(who[0], who[1], who[2])
	}
	c.callers["reading token"] = c.token(c.callers["operator"], `{"name":"reads","role":"viewer"}`)
	c.callers["sending token"] = c.token(c.callers["operator"], `{"name":"sends","scope":"events"}`)
	c.addTokens()
	c.things["job"] = c.newJob(`{"kind":"none"}`)
	c.things["daily"] = c.newJob(`{"kind":"cron","expr":"0 2 * * *"}`)
	c.things["script"] = c.id(w.must(201, "POST", "/api/v1/jobs", `{"group":"mine","name":"confidential script","script":{"language":"sh","code":"echo confidential"},"schedule":{"kind":"none"}}`))
	w.exec(`INSERT INTO missed (job_id, first_fire_time, last_fire_time, count, policy, why) VALUES ($1::bigint, now(), now(), 1, 'skip', 'confidential')`, c.things["job"])
	c.things["run"] = w.runningIn("mine").String()
	c.things["trigger"] = c.newTrigger()
	c.things["channel"] = c.newChannel()
	c.things["calendar"] = c.newCalendar()
	c.things["bulk"] = fmt.Sprint(c.must(202, "POST", "/api/v1/runs/bulk", `{"action":"kill","filter":{"group":"mine","state":"retrying"}}`).field("bulk.id"))
	w.letters.kept = []domain.DeadLetter{{Seq: 1, Kind: "event"}}
	return c
}

// addTokens adds callers with an API token: one for each role, and some whose rights have changed.
func (c *cast) addTokens() {
	add := func(caller, role, owner, body string) {
		c.callers[caller], c.roles[caller] = c.token(owner, body), role
	}
	add("admin's token", "admin", c.admin, `{"name":"of an admin"}`)
	add("operator's token", "operator", c.callers["operator"], `{"name":"of an operator"}`)
	add("viewer's token", "viewer", c.callers["viewer"], `{"name":"of a viewer"}`)
	add("admin's sending token", "operator", c.admin, `{"name":"sends everything","scope":"events"}`)
	c.roles["admin's sending token"] = "admin"

	// Earlier versions accepted groups of an admin's token.
	add("confined token", "operator", c.admin, `{"name":"confined"}`)
	c.exec(`UPDATE api_tokens SET groups = '{mine}' WHERE name = 'confined'`)
	add("demoted admin's token", "operator", c.login("dora", "admin", ""), `{"name":"of a demoted admin"}`)
	c.must(200, "PATCH", "/api/v1/users/dora", `{"role":"operator","groups":["mine"]}`)

	add("expired token", "admin", c.admin, `{"name":"expired"}`)
	c.exec(`UPDATE api_tokens SET expires_at = now() WHERE name = 'expired'`)
	add("disabled user's token", "admin", c.login("dina", "admin", ""), `{"name":"of a disabled admin"}`)
	c.must(200, "PATCH", "/api/v1/users/dina", `{"disabled":true}`)
	c.callers["deleted user's login"], c.roles["deleted user's login"] = c.login("dana", "admin", ""), "admin"
	add("deleted user's token", "admin", c.callers["deleted user's login"], `{"name":"of a deleted admin"}`)
	c.must(204, "DELETE", "/api/v1/users/dana", "")
	c.callers["demoted user's login"], c.roles["demoted user's login"] = c.login("duda", "admin", ""), "admin"
	c.must(200, "PATCH", "/api/v1/users/duda", `{"role":"viewer","groups":["mine"]}`)
	for _, caller := range []string{"expired token", "disabled user's token", "deleted user's login", "deleted user's token", "demoted user's login"} {
		c.ended[caller] = true
	}
}

// token makes an API token with the rights of owner, which is a token too.
func (c *cast) token(owner, body string) string {
	c.t.Helper()
	a := c.do(owner, "POST", "/api/v1/tokens", body)
	token, _ := a.field("token").(string)
	if a.status != 201 || token == "" {
		c.t.Fatalf("%s: %d %s", body, a.status, a.body)
	}
	return token
}

func (c *cast) unique() string {
	c.made++
	return fmt.Sprintf("thing-%d", c.made)
}

func (c *cast) id(a answer) string { return fmt.Sprint(a.field("id")) }

// login makes a user and a session for it.
func (c *cast) login(name, role, group string) string {
	c.t.Helper()
	c.must(201, "POST", "/api/v1/users", fmt.Sprintf(`{"username":%q,"password":%q,"role":%q,"groups":%s}`, name, adminPassword, role,
		map[bool]string{true: "[]", false: `["` + group + `"]`}[role == "admin"]))
	return c.session(name, adminPassword)
}

func (c *cast) newJob(schedule string) string {
	return c.id(c.must(201, "POST", "/api/v1/jobs", fmt.Sprintf(`{"group":"mine","name":"confidential %s","handler":"echo","schedule":%s}`, c.unique(), schedule)))
}

func (c *cast) newTrigger() string {
	return c.id(c.must(201, "POST", "/api/v1/event-triggers", `{"name":"confidential.event","job_id":`+c.things["job"]+`}`))
}

func (c *cast) newChannel() string {
	name := c.unique()
	c.must(201, "POST", "/api/v1/alert-channels", strings.Replace(newChannel, "<unique>", name, 1))
	return name
}

func (c *cast) newCalendar() string {
	name := c.unique()
	c.must(201, "POST", "/api/v1/calendars", `{"name":"`+name+`"}`)
	return name
}

// thing returns the id or name that replaces a <name> in a path or body.
func (c *cast) thing(name, caller string) string {
	switch name {
	case "unique":
		return c.unique()
	case "new job":
		return c.newJob(`{"kind":"none"}`)
	case "new ended run":
		id := domain.NewRunID(time.Now())
		c.exec(`INSERT INTO runs_history (id, job_id, job_version, group_name, cause, state, reason, message, output, attempt, due_at, created_at, finished_at, last_line, route)
		        VALUES ($1, $2::bigint, 1, 'mine', 'manual', 'failed', 'handler_error', 'confidential', '', 1, now(), now(), now(), 0, '')`, id, c.things["job"])
		return id.String()
	case "new trigger":
		return c.newTrigger()
	case "new channel":
		return c.newChannel()
	case "new calendar":
		return c.newCalendar()
	case "new user":
		name := c.unique()
		c.must(201, "POST", "/api/v1/users", `{"username":"`+name+`","password":"a-good-password","role":"viewer","groups":["mine"]}`)
		return name
	case "new group":
		name := c.unique()
		c.must(201, "POST", "/api/v1/groups", `{"name":"`+name+`"}`)
		return name
	case "paused group":
		c.do(c.admin, "POST", "/api/v1/groups/mine/pause", `{"reason":"r"}`) // fails if the group is already paused
		return "mine"
	case "paused job":
		c.must(200, "POST", "/api/v1/jobs/"+c.things["job"]+"/pause", `{"reason":"r"}`)
		return c.things["job"]
	case "new token":
		a := c.do(c.callers[caller], "POST", "/api/v1/tokens", `{"name":"`+c.unique()+`"}`)
		if a.status != 201 {
			return "1" // this caller may not make a token
		}
		return c.id(a)
	case "letter":
		c.letter++
		c.letters.kept = append(c.letters.kept, domain.DeadLetter{Seq: 100 + c.letter, Kind: "event"})
		return fmt.Sprint(100 + c.letter)
	}
	if c.things[name] == "" {
		c.t.Fatalf("there is no thing %q", name)
	}
	return c.things[name]
}

func (c *cast) fill(text, caller string) string {
	for {
		before, rest, found := strings.Cut(text, "<")
		if !found {
			return text
		}
		name, after, _ := strings.Cut(rest, ">")
		text = before + c.thing(name, caller) + after
	}
}

// brief ends a request after the first flush.
type brief struct {
	*httptest.ResponseRecorder
	enough context.CancelFunc
}

func (b brief) Flush() { b.ResponseRecorder.Flush(); b.enough() }

// ask sends a request like do, but ends streams after their first event.
func (c *cast) ask(token, method, path, body string, header []string) answer {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	c.asked++ // each request has its own address, because log-ins are limited by address
	r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", c.asked/250, c.asked%250)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	c.api.ServeHTTP(brief{rec, cancel}, r)
	return answer{rec.Code, rec.Result().Header, rec.Body.String()}
}

var rank = map[string]int{"": 0, "viewer": 1, "operator": 2, "admin": 3}

// want returns the status that a caller must get.
func (c *cast) want(e access, caller string) int {
	switch {
	case (caller == "nobody" || c.ended[caller]) && e.least != "":
		return http.StatusUnauthorized
	case strings.HasSuffix(caller, "sending token") && e.least != "" && !e.events:
		return http.StatusForbidden
	case rank[c.roles[caller]] < rank[e.least]:
		return http.StatusForbidden
	case strings.HasSuffix(caller, "token") && e.tokens != 0:
		return e.tokens
	case caller == "stranger" && e.hidden != 0:
		return e.hidden
	}
	return e.status
}

// missing returns the path or body with the ids and names of resources that do not exist.
func (c *cast) missing(text string) string {
	for name, none := range map[string]string{"run": c.noRun(), "new ended run": c.noRun(), "paused group": "none"} {
		text = strings.ReplaceAll(text, "<"+name+">", none)
	}
	for _, name := range []string{"job", "new job", "paused job", "daily", "script", "trigger", "new trigger", "bulk"} {
		text = strings.ReplaceAll(text, "<"+name+">", "987654")
	}
	return strings.NewReplacer("mine", "none").Replace(text)
}

func (c *cast) noRun() string { return domain.NewRunID(time.Now()).String() }

// Every route of the router is tested with every kind of caller. A route without an entry in accesses fails.
func TestEveryRouteAsEveryRole(t *testing.T) {
	c := newCast(t)
	routes := map[string]bool{}
	err := chi.Walk(c.api.Routes(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes[method+" "+strings.TrimPrefix(route, "/api/v1")] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for route := range accesses {
		if !routes[route] && route != "GET /" {
			t.Errorf("there is no route %s", route)
		}
	}
	for _, route := range slices.Sorted(maps.Keys(routes)) {
		e, known := accesses[route]
		if !known {
			t.Errorf("%s has no entry in accesses; add one", route)
			continue
		}
		c.try(t, route, e)
	}
}

func (c *cast) try(t *testing.T, route string, e access) {
	method, path, _ := strings.Cut(route, " ")
	if e.path != "" {
		path = e.path
	}
	if outside := []string{"/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs/style.css"}; !slices.Contains(outside, path) {
		path = "/api/v1" + path
	}
	for _, caller := range slices.Sorted(maps.Keys(c.callers)) {
		token := c.callers[caller]
		if e.fresh && token != "" && !c.ended[caller] && !strings.HasSuffix(caller, "token") {
			token = c.login(c.unique(), c.roles[caller], "mine")
		}
		a := c.ask(token, method, c.fill(path, caller), c.fill(e.body, caller), e.header)
		want := c.want(e, caller)
		if a.status != want {
			t.Errorf("%s as %s: %d, want %d: %.300s", route, caller, a.status, want, a.body)
		}
		if caller != "stranger" || e.hidden == 0 {
			continue
		}
		// The answers for hidden and missing resources are the same, except for the name in the request.
		plain := strings.NewReplacer("mine", "", "none", "")
		none := c.ask(token, method, c.missing(path), c.missing(c.fill(strings.ReplaceAll(e.body, "<job>", "987654"), caller)), e.header)
		if none.status != a.status || plain.Replace(none.body) != plain.Replace(a.body) {
			t.Errorf("%s as stranger: hidden %d %.300s, missing %d %.300s; both answers must be the same", route, a.status, a.body, none.status, none.body)
		}
		if strings.Contains(a.body, "confidential") {
			t.Errorf("%s shows a stranger %.300s", route, a.body)
		}
	}
}

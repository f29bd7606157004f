package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/console"
	"github.com/belfryhq/belfry/console/api"
	"github.com/belfryhq/belfry/console/api/system"
	"github.com/belfryhq/belfry/console/api/tokens"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/dispatcher"
	"github.com/belfryhq/belfry/dispatcher/boots"
	"github.com/belfryhq/belfry/dispatcher/firecheck"
	"github.com/belfryhq/belfry/dispatcher/followup"
	"github.com/belfryhq/belfry/dispatcher/logs"
	statistics "github.com/belfryhq/belfry/dispatcher/runstats"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/deadletter"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/natsauth"
	"github.com/belfryhq/belfry/internal/store"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/attention"
	"github.com/belfryhq/belfry/internal/store/auditlog"
	"github.com/belfryhq/belfry/internal/store/bulk"
	"github.com/belfryhq/belfry/internal/store/gateway"
	"github.com/belfryhq/belfry/internal/store/group"
	"github.com/belfryhq/belfry/internal/store/idempotency"
	"github.com/belfryhq/belfry/internal/store/logchunk"
	"github.com/belfryhq/belfry/internal/store/retention"
	statstore "github.com/belfryhq/belfry/internal/store/runstats"
	"github.com/belfryhq/belfry/internal/store/view"
	"github.com/belfryhq/belfry/migrations"
	"github.com/belfryhq/belfry/scheduler"
)

// useFollowUps enables the store to enqueue River jobs. It also counts the runs that the store refuses.
func (p *process) useFollowUps(s *store.Store) error {
	q, err := followup.NewQueue(s.Pool(), migrations.RiverSchema, p.log)
	if err != nil {
		return err
	}
	s.UseFollowUps(q)
	s.OnOverflow(p.overflows())
	return nil
}

// bulkActions returns the store of bulk actions.
func (p *process) bulkActions(s *store.Store) (*bulk.Store, error) {
	q, err := followup.NewQueue(s.Pool(), migrations.RiverSchema, p.log)
	if err != nil {
		return nil, err
	}
	return bulk.New(s.Pool(), q), nil
}

// addDispatcher adds the component that fires, offers and kills. All roles but the executor have it.
func (p *process) addDispatcher(s *store.Store, nc *nats.Conn, lostAfter time.Duration) (*dispatcher.Firing, error) {
	if err := p.useFollowUps(s); err != nil {
		return nil, err
	}
	d, err := dispatcher.NewFiring(dispatcher.Config{
		Stores: dispatcher.Stores{Announce: s, Settle: s, Offer: s, Kill: s, Fire: s},
		Conn:   nc, Log: p.log, Registry: p.registry, LostAfter: lostAfter, Trace: p.app.Trace,
		Limits: group.New(s.Pool()), Tracer: p.tracer(),
		Closed: func(group string, instances []string) {
			if err := natsauth.AnnounceClosed(nc, group, instances); err != nil {
				p.log.Warn("cannot announce a group with too many instances, its log-ins are not refused", "group", group, "err", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	s.OnEnded(d.Ended)
	p.group.Add(lifecycle.Component{Name: "roster and offers", Run: d.Watch, Ready: d.Ready()})
	return d, nil
}

// addSettling adds the components that only the dispatcher role has.
func (p *process) addSettling(d *dispatcher.Firing, s *store.Store, nc *nats.Conn, keep config.Keeping, tell config.Alerts) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	lines, err := logs.New(logs.Config{JetStream: js, Store: s, Encode: logchunk.Encode, DeadLetter: d.DeadLetter, Log: p.log, Registry: p.registry})
	if err != nil {
		return err
	}
	actions, err := p.bulkActions(s)
	if err != nil {
		return err
	}
	performer := bulk.NewPerformer(actions, s, account.New(s.Pool()).Tokens)
	workers, err := followup.NewWorkers(s.Pool(), migrations.RiverSchema, s, p.addAlerts(s, tell, keep.RunRetention),
		&followup.Bulk{Performer: performer, Fleet: d, Registry: p.registry}, p.log, p.app.Trace)
	if err != nil {
		return err
	}
	if err := p.useEvents(s); err != nil {
		return err
	}
	p.addEvents(d, js)
	p.add("run logs", lines.Run)
	p.add("follow-ups", workers.Run)
	p.add("retention", func(ctx context.Context) error { return p.retain(ctx, s, keep) })
	p.add("dispatcher", dispatcher.NewRole(d, dispatcher.RoleStores{Assign: s, Verdict: s, Reconcile: s, Upkeep: s, Glance: s}).Run)
	p.addUsage(group.New(s.Pool()), attention.New(s.Pool()), d.Instances)
	p.addPressure(view.NewPostgres(s.Pool()))
	p.add("executor versions", boots.New(group.New(s.Pool()), d.Instances, p.log).Run)
	p.add("run statistics", statistics.New(statstore.New(s.Pool()), p.log, p.registry).Run)
	p.add("fire check", firecheck.New(firecheck.Config{Store: s, Reader: fireCheck(s), Log: p.log, Registry: p.registry}).Run)
	return nil
}

func fireCheck(s *store.Store) *view.FireCheck {
	return view.NewFireCheck(s.Pool(), s.Zone(), s.Settings().Tolerance)
}

// retain deletes runs, logs and events after their retention, every hour.
func (p *process) retain(ctx context.Context, s *store.Store, keep config.Keeping) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if err := retention.New(s.Pool()).Keep(ctx, keep.RunRetention, keep.LogRetention); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot delete old runs and logs, retrying", "err", err)
		}
		if err := p.events.DropDays(ctx, keep.EventRetention); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot delete old events, retrying", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *process) addScheduler(s *store.Store, d *dispatcher.Firing) {
	p.add("scheduler", scheduler.New(scheduler.Config{Store: s, Firer: d, Log: p.log, Registry: p.registry}).Run)
	p.add("scheduler presence", func(ctx context.Context) error { return p.attend(ctx, s) })
}

// attend records periodically in Postgres that this scheduler is running, so that the fire check knows when no scheduler ran. A
// record does not prove that the scheduler plans, but the usual reasons for not planning also prevent the record: the process
// has ended or is suspended, or Postgres is unavailable.
func (p *process) attend(ctx context.Context, s *store.Store) error {
	name := p.name()
	for presence, silent := int64(0), false; ; {
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), presencePeriod)
		var err error
		presence, err = s.Attend(work, presence, name) // once more after ctx has ended, so that a gap starts exactly then
		cancel()
		if err != nil && !silent && ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot record that this scheduler is running, retrying", "err", err)
		}
		silent = err != nil
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of the context is no failure
		}
		lifecycle.Rest(ctx, presencePeriod)
	}
}

// presencePeriod is a third of store.Silence.
const presencePeriod = 2 * time.Second

// logins are the settings of the authentication of executors by their group's token.
type logins struct {
	issuer  nkeys.KeyPair
	account string
	system  *nats.Conn // a connection to the system account of NATS; nil: none is configured
	wait    bool       // whether later components start only when log-ins are answered
	alive   func(group, instance string) bool
}

// addAuth adds the components that authenticate executors and end the connections of replaced tokens.
func (p *process) addAuth(nc *nats.Conn, s *store.Store, l logins) error {
	groups, senders := group.New(s.Pool()), account.New(s.Pool()).Tokens
	valid := directory{groups, senders}
	cfg := natsauth.Config{
		Verifier: groups, Senders: senders, Limits: groups, Directory: valid, Alive: l.alive,
		Issuer: l.issuer, Account: l.account, Log: p.log, Registry: p.registry,
	}
	if l.system == nil {
		cfg.Lifetime = natsauth.ShortLifetime
		p.log.Warn("no system connection to NATS is configured (--nats-system-url), executors log in again every minute")
	} else {
		cfg.Sessions = natsauth.NewSessions(natsauth.SessionsConfig{
			System: l.system, Directory: valid, Account: l.account, Log: p.log, Registry: p.registry,
		})
		p.add("NATS connections", cfg.Sessions.Run)
	}
	r, err := natsauth.New(cfg)
	if err != nil {
		return err
	}
	part := lifecycle.Component{Name: "executor log-ins", Run: func(ctx context.Context) error { return r.Run(ctx, nc) }}
	if l.wait {
		part.Ready = r.Ready()
	}
	p.group.Add(part)
	return nil
}

// directory looks up the valid tokens of groups and of senders of events.
type directory struct {
	groups  *group.Store
	senders *account.Tokens
}

// TokensOfGroups implements natsauth.Directory.
func (d directory) TokensOfGroups(ctx context.Context, groups []string) (map[string][][]byte, error) {
	return d.groups.TokensOfGroups(ctx, groups)
}

// LiveSenders implements natsauth.Directory.
func (d directory) LiveSenders(ctx context.Context, ids []int64) ([]int64, error) {
	return d.senders.LiveSenders(ctx, ids)
}

// connectSystem connects to the system account of an external NATS. It returns nil if the settings name no user of it.
func (p *process) connectSystem(name string, c config.NATS) (*nats.Conn, error) {
	if c.NATSSystemURL == "" {
		return nil, nil
	}
	nc, err := p.connect(name+" (system account)", c.NATSSystemURL.Reveal(), natsTLSOptions(c.NATSTLS)...)
	if err != nil {
		return nil, err
	}
	p.hold("NATS system connection", func(context.Context) error { nc.Close(); return nil })
	return nc, nil
}

// announceTokens returns a function that announces a change of the tokens of a group or of a sender of events, so that the
// change applies at once to log-ins and to open connections.
func (p *process) announceTokens(nc *nats.Conn) func(owner string) {
	return func(owner string) {
		if err := natsauth.AnnounceChange(nc, owner); err != nil {
			p.log.Warn("cannot announce a replaced token, its connections end within a minute", "group", owner, "err", err)
		}
	}
}

// readIssuer reads the account seed that signs executors' log-ins. It returns nil if the settings name none: the NATS server then
// authenticates executors itself.
func readIssuer(c config.NATS) (nkeys.KeyPair, error) {
	if c.NATSIssuerSeed == "" {
		return nil, nil
	}
	seed, err := os.ReadFile(c.NATSIssuerSeed)
	if err != nil {
		return nil, domain.WrapError(domain.Invalid, "read --nats-issuer-seed", err)
	}
	return natsauth.ParseIssuer(string(seed))
}

// forgettingGroups calls forget after a group's token has changed, so that the change applies at once to log-ins and to
// open connections.
type forgettingGroups struct {
	*group.Store
	forget func(name string)
}

// RotateGroupToken replaces a group's token and calls forget.
func (g forgettingGroups) RotateGroupToken(ctx context.Context, name string, overlap time.Duration) (string, error) {
	token, err := g.Store.RotateGroupToken(ctx, name, overlap)
	if err == nil {
		g.forget(name)
	}
	return token, err
}

// DeleteGroup deletes a group and calls forget.
func (g forgettingGroups) DeleteGroup(ctx context.Context, name string) error {
	err := g.Store.DeleteGroup(ctx, name)
	if err == nil {
		g.forget(name)
	}
	return err
}

// forgettingTokens calls forget after an API token for events was deleted, so that its connections end.
type forgettingTokens struct {
	tokens.Store
	forget func(name string)
}

// DeleteToken deletes an API token and, if the token is for events, calls forget.
func (f forgettingTokens) DeleteToken(ctx context.Context, userID, id int64) (account.Token, error) {
	t, err := f.Store.DeleteToken(ctx, userID, id)
	if err == nil && t.Scope == account.ScopeEvents {
		f.forget(natsauth.SenderName(id))
	}
	return t, err
}

// listen opens the console's address. It runs before other components start, so that an error has no side effects.
func listen(c config.Web, log *slog.Logger) (net.Listener, error) {
	cert, secure, err := serverTLS("--tls-cert", c.TLSCert, c.TLSKey, log, "h2", "http/1.1")
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", c.HTTP)
	if err != nil {
		return nil, domain.WrapError(domain.Conflict, "listen on --http "+c.HTTP+"; choose another port with --http host:port, or 0 for a free port", err)
	}
	if secure != nil {
		return &tlsListener{ln.(*net.TCPListener), secure, cert}, nil
	}
	return ln, nil
}

// checkAdminPassword rejects a weak password before components start.
func checkAdminPassword(password config.Secret) error {
	if password == "" {
		return nil
	}
	return account.CheckPassword("--admin-password (BELFRY_ADMIN_PASSWORD)", "admin", password.Reveal())
}

// addConsole adds the console with the REST API and returns its address. alone says that the process has no other role.
func (p *process) addConsole(ln net.Listener, s *store.Store, nc *nats.Conn, v *servers, alone bool, d *dispatcher.Firing, accounts account.Stores, forget func(name string), tell config.Alerts, o config.OIDC, web config.Web) (string, error) {
	if err := p.useEvents(s); err != nil {
		return "", err
	}
	letters, err := deadletter.New(nc)
	if err != nil {
		return "", err
	}
	meterListener(p.registry, ln)
	keys := idempotency.New(s.Pool(), tell.SecretKey.Reveal())
	views := view.New(s.Pool())
	views.TraceURL = tell.TraceURL
	actions, err := p.bulkActions(s)
	if err != nil {
		return "", err
	}
	server, err := console.New(console.Config{Listener: ln, TrustedProxies: web.Proxies(), Around: p.traceRequests(), API: api.Config{
		Jobs: s, Calendars: s, Pauses: s, Fleet: d,
		Authenticator: accounts, Users: accounts.Users, Sessions: accounts.Sessions, Tokens: forgettingTokens{accounts.Tokens, forget},
		Groups: forgettingGroups{group.New(s.Pool()), forget}, Gateways: gateway.New(s.Pool(), tell.SecretKey.Reveal()), AuditLog: auditlog.New(s.Pool()), Idempotency: keys,
		Bulk: actions, Views: views, Fires: fireCheck(s), Reports: statstore.New(s.Pool()), Events: p.events, Letters: letters, Attention: attention.New(s.Pool()), Alerts: newConsoleAlerts(s, tell), Changes: runChanges{nc, p.log}, Zone: s.Zone(), Log: p.log,
		Ready: v.checks(alone), Outages: addTroubles(p, s, v), Executors: system.ExecutorsAt(web.ExecutorURL),
		Registerer: p.registry, Gatherer: p.registry, Build: p.app.Build,
		// If users reach the console by https, cookies are for https only, even if a proxy terminates TLS.
		SecureCookies: strings.HasPrefix(tell.ConsoleURL, "https://"),
		OIDC:          provider(o, tell.ConsoleURL),
	}})
	if err != nil {
		return "", err
	}
	p.add("console", server.Run)
	p.add("account sweep", func(ctx context.Context) error { return p.sweep(ctx, accounts.Sessions, keys) })
	return urlOf(ln), nil
}

// provider returns the identity provider of the settings, or nil if there is none.
func provider(o config.OIDC, consoleURL string) *auth.Provider {
	if !o.Enabled() {
		return nil
	}
	roles, groups := map[string]account.Role{}, map[string][]string{}
	for _, m := range o.OIDCRoles {
		value, role := config.Mapping(m)
		if r := account.Role(role); roles[value] == "" || r.AtLeast(roles[value]) {
			roles[value] = r
		}
	}
	for _, m := range o.OIDCGroups {
		value, group := config.Mapping(m)
		groups[value] = append(groups[value], group)
	}
	return auth.NewProvider(auth.OIDCConfig{
		Issuer: o.OIDCIssuer, ClientID: o.OIDCClientID, ClientSecret: o.OIDCClientSecret.Reveal(), RedirectURL: o.Callback(consoleURL), Name: o.OIDCName,
		Scopes: append([]string{"openid"}, o.OIDCScopes...), UsernameClaim: o.OIDCUsernameClaim, RoleClaim: o.OIDCRoleClaim, GroupsClaim: o.OIDCGroupsClaim,
		Roles: roles, DefaultRole: account.Role(o.OIDCDefaultRole), Groups: groups, SessionLifetime: o.OIDCSession,
	})
}

const sweepPeriod = 10 * time.Minute

// sweep periodically deletes expired log-ins and old idempotency keys.
func (p *process) sweep(ctx context.Context, sessions *account.Sessions, keys *idempotency.Store) error {
	tick := time.NewTicker(sweepPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		_, err := sessions.Sweep(ctx)
		if err == nil {
			_, err = keys.Sweep(ctx)
		}
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot delete expired log-ins, retrying", "err", err)
		}
	}
}

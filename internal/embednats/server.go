package embednats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/belfryhq/belfry/internal/domain"
)

const (
	account = "BELFRY"

	// Callers usually bound the start by their context; this bound applies otherwise. Recovering full streams from a
	// slow disk takes seconds.
	startTimeout = 60 * time.Second
	readyPoll    = 10 * time.Millisecond

	syncInterval = 5 * time.Second
	// Clients wait 2 s for a log-in; the server must not give up before them.
	authTimeoutSeconds = 3
	tlsTimeoutSeconds  = 5

	defaultMaxStore  = 8 << 30
	defaultMaxMemory = 128 << 20 // for the state of consumers; all streams are on disk
	maxPayload       = 1 << 20
)

// Config holds the server's address and storage. Only StoreDir is required.
type Config struct {
	// StoreDir is created if it is missing, with access for this user only.
	StoreDir string
	// Host is an address of this machine; 127.0.0.1 if empty.
	Host string
	// Port is a TCP port; 0 selects a free one.
	Port int
	// MaxStoreBytes bounds JetStream's storage on disk; 8 GiB if 0. The bounds of the streams are reserved in it, so it
	// must be at least natsinfra.StorageBytes.
	MaxStoreBytes int64
	// TLS is the configuration of the port; nil for plain text. Connections within the process do not use TLS.
	TLS *tls.Config
	// Log receives the server's warnings and errors, and at level debug all its output.
	Log *slog.Logger
}

// Server is a running NATS server.
type Server struct {
	ns     *server.Server
	lock   *os.File
	scheme string
	host   string
	system nkeys.KeyPair
	// monitor is the key of the user of the system account.
	monitor nkeys.KeyPair
	issuer  nkeys.KeyPair
	done    chan struct{} // closed when the server has ended and StoreDir is free
}

// Start returns when the server accepts connections and has recovered its streams. The error has code conflict if the
// port is in use or another server uses StoreDir.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := ctx.Err(); err != nil {
		return nil, domain.WrapError(domain.Unavailable, "start the NATS server", err)
	}
	if cfg.StoreDir == "" {
		return nil, domain.NewError(domain.Invalid, "the NATS server needs a store directory")
	}
	if cfg.Port < 0 || cfg.Port > 65535 {
		return nil, domain.NewError(domain.Invalid, fmt.Sprintf("%d is not a TCP port (--nats)", cfg.Port))
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.MaxStoreBytes == 0 {
		cfg.MaxStoreBytes = defaultMaxStore
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.StoreDir, 0o700); err != nil {
		return nil, domain.WrapError(domain.Internal, "create the NATS store directory", err)
	}
	lock, err := lockDir(cfg.StoreDir)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.lock = lock
	go func() {
		s.ns.WaitForShutdown()
		// Closing the file releases the lock. An error can be ignored, because the process's exit releases it too.
		_ = s.lock.Close()
		close(s.done)
	}()
	return s, nil
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	issuer, err := loadIssuer(filepath.Join(cfg.StoreDir, "issuer.seed"))
	if err != nil {
		return nil, err
	}
	system, err := nkeys.CreateUser()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "make a NATS key", err)
	}
	monitor, err := nkeys.CreateUser()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "make a NATS key", err)
	}
	opts, err := options(cfg, issuer, system, monitor)
	if err != nil {
		return nil, err
	}
	if err := probe(cfg.Host, cfg.Port); err != nil {
		return nil, err
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "prepare the NATS server", err)
	}
	log := newLogger(cfg.Log)
	ns.SetLoggerV2(log, log.debug(), false, false)
	go ns.Start()
	if err := awaitReady(ctx, ns, log.fatal); err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, err
	}
	scheme := "nats://"
	if cfg.TLS != nil {
		scheme = "tls://"
	}
	return &Server{ns: ns, scheme: scheme, host: cfg.Host, system: system, monitor: monitor, issuer: issuer, done: make(chan struct{})}, nil
}

// options configures accounts and log-ins in the server's own configuration language, like deploy/nats/nats.conf, because only
// this form enables JetStream for an account before clients can connect.
func options(cfg Config, issuer, system, monitor nkeys.KeyPair) (*server.Options, error) {
	issuerKey, err := issuer.PublicKey()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "read the issuer key", err)
	}
	systemKey, err := system.PublicKey()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "read the NATS key", err)
	}
	monitorKey, err := monitor.PublicKey()
	if err != nil {
		return nil, domain.WrapError(domain.Internal, "read the NATS key", err)
	}
	opts := &server.Options{}
	rules := fmt.Sprintf(`
		accounts {
			%[1]s { jetstream: enabled, users: [ { nkey: %[2]s } ] }
			SYS { users: [ { nkey: %[5]s } ] }
		}
		system_account: SYS
		authorization {
			timeout: %[4]d
			auth_callout { issuer: %[3]s, account: %[1]s, auth_users: [ %[2]s ], allowed_accounts: [ %[1]s ] }
		}`, account, systemKey, issuerKey, authTimeoutSeconds, monitorKey)
	if err := opts.ProcessConfigString(rules); err != nil {
		return nil, domain.WrapError(domain.Internal, "configure the NATS server", err)
	}
	opts.ServerName = "belfry"
	opts.Host = cfg.Host
	opts.Port = cfg.Port
	if cfg.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	opts.NoSigs = true
	opts.NoLog = true
	opts.DisableJetStreamBanner = true
	opts.MaxPayload = maxPayload
	opts.JetStream = true
	opts.StoreDir = cfg.StoreDir
	opts.JetStreamMaxStore = cfg.MaxStoreBytes
	opts.JetStreamMaxMemory = defaultMaxMemory
	opts.SyncInterval = syncInterval
	if cfg.TLS != nil {
		opts.TLS = true
		opts.TLSConfig = cfg.TLS
		opts.TLSTimeout = tlsTimeoutSeconds
	}
	return opts, nil
}

// probe detects a used port before any stream is recovered. If another process takes the port after that, the server's
// own error ends the start.
func probe(host string, port int) error {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return domain.WrapError(domain.Conflict,
			fmt.Sprintf("NATS cannot listen on %s: port %d is in use; choose another one with --nats", address, port), err)
	}
	if err != nil {
		return domain.WrapError(domain.Invalid, fmt.Sprintf("NATS cannot listen on %s (--nats)", address), err)
	}
	return l.Close()
}

func awaitReady(ctx context.Context, ns *server.Server, fatal <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ns.ReadyForConnections(readyPoll) {
		select {
		case text := <-fatal:
			return domain.NewError(domain.Internal, "the NATS server did not start: "+text)
		case <-ctx.Done():
			return domain.WrapError(domain.Unavailable, "the NATS server was not ready in time", ctx.Err())
		default:
		}
	}
	return nil
}

// URL returns the server's URL with the bound port.
func (s *Server) URL() string {
	host := s.host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	port := 0
	if address, ok := s.ns.Addr().(*net.TCPAddr); ok {
		port = address.Port
	}
	return s.scheme + net.JoinHostPort(host, strconv.Itoa(port))
}

// Account returns the NATS account of all of Belfry's clients.
func (s *Server) Account() string { return account }

// Issuer returns the key that signs executors' permissions: natsauth.Config.Issuer.
func (s *Server) Issuer() nkeys.KeyPair { return s.issuer }

// InProcessURL returns the URL for connections within the process, which never use TLS.
func (s *Server) InProcessURL() string { return "nats://" + strings.TrimPrefix(s.URL(), s.scheme) }

// SystemOptions returns the options for nats.Connect(s.InProcessURL(), …) to connect as the system side, which has all
// permissions. The connection is made within the process, without TCP.
func (s *Server) SystemOptions() []nats.Option {
	public, err := s.system.PublicKey()
	if err != nil { // cannot happen with a key created here
		return []nats.Option{func(*nats.Options) error { return err }}
	}
	return []nats.Option{nats.InProcessServer(s.ns), nats.Nkey(public, s.system.Sign)}
}

// MonitorOptions returns the options for nats.Connect(s.InProcessURL(), …) to connect to the system account, which can list and
// end all connections: natsauth.SessionsConfig.System.
func (s *Server) MonitorOptions() []nats.Option {
	public, err := s.monitor.PublicKey()
	if err != nil { // cannot happen with a key created here
		return []nats.Option{func(*nats.Options) error { return err }}
	}
	return []nats.Option{nats.InProcessServer(s.ns), nats.Nkey(public, s.monitor.Sign)}
}

// InProcess returns the option to connect within the process, for executors with a group's token.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.ns) }

// Stop closes all connections, stops the server, and returns when its files are closed. If ctx ends first, the shutdown
// continues, and StoreDir stays locked until it has finished.
func (s *Server) Stop(ctx context.Context) error {
	go s.ns.Shutdown()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return domain.WrapError(domain.Unavailable, "stop the NATS server", ctx.Err())
	}
}

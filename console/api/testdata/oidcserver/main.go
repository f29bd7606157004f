// Command oidcserver is the OpenID provider for tests of the log-in. The protocol is implemented by ory/fosite. This program
// adds the endpoints, the clients and the user. It is a module of its own, so that its dependencies are not those of Belfry.
//
// It prints its issuer. PUT /user sets the claims of the user who is logged in. At first no user is logged in.
// PUT /redirect?to=URI sets the redirect URI later, for tests whose console needs the issuer before it has an address.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v3"
	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"github.com/ory/fosite/handler/openid"
	"github.com/ory/fosite/storage"
	"github.com/ory/fosite/token/jwt"
	"golang.org/x/crypto/bcrypt"
)

const keyID = "the key of the test"

func main() {
	redirect := flag.String("redirect", "", "redirect URI of both clients")
	flag.Parse()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s, err := newServer("http://"+ln.Addr().String(), *redirect)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.issuer)
	log.Fatal(http.Serve(ln, s.routes())) //nolint:gosec // the test ends it
}

type server struct {
	issuer   string
	key      *rsa.PrivateKey
	provider fosite.OAuth2Provider
	store    *storage.MemoryStore

	mu   sync.Mutex
	user map[string]any // claims; nil: no user is logged in
}

// newServer makes a server with the clients belfry and other, whose secrets are their names and "-secret".
func newServer(issuer, redirect string) (*server, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	store := storage.NewMemoryStore()
	for _, id := range []string{"belfry", "other"} {
		secret, err := bcrypt.GenerateFromPassword([]byte(id+"-secret"), bcrypt.MinCost)
		if err != nil {
			return nil, err
		}
		store.Clients[id] = &fosite.DefaultClient{ID: id, Secret: secret, RedirectURIs: []string{redirect}, ResponseTypes: []string{"code"},
			GrantTypes: []string{"authorization_code"}, Scopes: []string{"openid", "profile", "email", "groups"}}
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	config := &fosite.Config{GlobalSecret: secret, IDTokenIssuer: issuer, AccessTokenIssuer: issuer, EnforcePKCE: true,
		IDTokenLifespan: time.Hour, HashCost: bcrypt.MinCost}
	provider := compose.Compose(config, store, &compose.CommonStrategy{
		CoreStrategy: compose.NewOAuth2HMACStrategy(config),
		OpenIDConnectTokenStrategy: compose.NewOpenIDConnectStrategy(func(context.Context) (any, error) {
			return &jose.JSONWebKey{Key: key, KeyID: keyID, Algorithm: "RS256", Use: "sig"}, nil
		}, config),
	}, compose.OAuth2AuthorizeExplicitFactory, compose.OpenIDConnectExplicitFactory, compose.OAuth2PKCEFactory, compose.OAuth2TokenIntrospectionFactory)
	return &server{issuer: issuer, key: key, provider: provider, store: store}, nil
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": s.issuer, "authorization_endpoint": s.issuer + "/authorize", "token_endpoint": s.issuer + "/token",
			"jwks_uri": s.issuer + "/keys", "userinfo_endpoint": s.issuer + "/userinfo", "response_types_supported": []string{"code"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &s.key.PublicKey, KeyID: keyID, Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", s.authorize)
	mux.HandleFunc("POST /token", s.token)
	mux.HandleFunc("GET /userinfo", s.userinfo)
	mux.HandleFunc("PUT /user", func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.user = nil
		json.NewDecoder(r.Body).Decode(&s.user) //nolint:errcheck // after an error no user is logged in
	})
	mux.HandleFunc("PUT /redirect", func(_ http.ResponseWriter, r *http.Request) {
		for _, c := range s.store.Clients {
			c.(*fosite.DefaultClient).RedirectURIs = []string{r.URL.Query().Get("to")} // there are no log-ins at the same time
		}
	})
	return mux
}

func (s *server) authorize(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := s.provider.NewAuthorizeRequest(ctx, r)
	if err != nil {
		s.provider.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	s.mu.Lock()
	user := s.user
	s.mu.Unlock()
	if user == nil {
		s.provider.WriteAuthorizeError(ctx, w, request, fosite.ErrAccessDenied)
		return
	}
	for _, scope := range request.GetRequestedScopes() {
		request.GrantScope(scope)
	}
	response, err := s.provider.NewAuthorizeResponse(ctx, request, session(user, false))
	if err != nil {
		s.provider.WriteAuthorizeError(ctx, w, request, err)
		return
	}
	s.provider.WriteAuthorizeResponse(ctx, w, request, response)
}

// session makes the session of a user. It contains the claims below "userinfo" only if all is true, which is for /userinfo.
func session(user map[string]any, all bool) *openid.DefaultSession {
	claims := &jwt.IDTokenClaims{RequestedAt: time.Now(), AuthTime: time.Now(), Extra: map[string]any{}}
	for name, value := range user {
		switch name {
		case "sub":
			claims.Subject, _ = value.(string)
		case "userinfo":
			if more, ok := value.(map[string]any); ok && all {
				for name, value := range more {
					claims.Extra[name] = value
				}
			}
		default:
			claims.Extra[name] = value
		}
	}
	return &openid.DefaultSession{Claims: claims, Headers: &jwt.Headers{}, Subject: claims.Subject, Username: claims.Subject}
}

func (s *server) token(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	request, err := s.provider.NewAccessRequest(ctx, r, session(nil, false))
	if err != nil {
		s.provider.WriteAccessError(ctx, w, request, err)
		return
	}
	response, err := s.provider.NewAccessResponse(ctx, request)
	if err != nil {
		s.provider.WriteAccessError(ctx, w, request, err)
		return
	}
	s.provider.WriteAccessResponse(ctx, w, request, response)
}

func (s *server) userinfo(w http.ResponseWriter, r *http.Request) {
	_, request, err := s.provider.IntrospectToken(r.Context(), fosite.AccessTokenFromRequest(r), fosite.AccessToken, session(nil, false))
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	user := s.user
	s.mu.Unlock()
	claims := session(user, true).Claims
	claims.Extra["sub"] = request.GetSession().GetSubject()
	answer(w, claims.Extra)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) //nolint:errcheck // the client is gone
}

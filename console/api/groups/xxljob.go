package groups

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"strings"

	"github.com/belfryhq/belfry/console/api/rest"
	"github.com/belfryhq/belfry/console/api/strict"
	"github.com/belfryhq/belfry/console/auth"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/explain"
	"github.com/belfryhq/belfry/internal/store/account"
	"github.com/belfryhq/belfry/internal/store/gateway"
)

// Gateways keeps which groups are open for executors of XXL-JOB.
type Gateways interface {
	// OpenGroup opens a group, or changes how it is open. Conflict: another open group has the app name.
	OpenGroup(ctx context.Context, g gateway.Group) error
	// Group returns an open group. NotFound: the group is not open.
	Group(ctx context.Context, name string) (gateway.Group, error)
	// OpenAmong returns the names of those of the groups that are open.
	OpenAmong(ctx context.Context, names []string) ([]string, error)
	// Encrypts reports whether access tokens are stored encrypted.
	Encrypts() bool
}

func (a *API) registerXXLJob(r *rest.Router, tag string) {
	rest.Register(r, rest.Operation{Method: "GET", Path: "/groups/{name}/xxl-job", Tag: tag, Summary: "Show how a group is open for executors of XXL-JOB",
		Description: "If the group is not open for them, the answer is 404.", Needs: account.Viewer}, a.xxlJob)
	rest.Register(r, rest.Operation{Method: "PUT", Path: "/groups/{name}/xxl-job", Tag: tag, Summary: "Open a group for executors of XXL-JOB",
		Description: "The executors register at a gateway. Fields that are absent keep their values. The first time, one of `token`, `generate` and `without_token` is required. A change takes effect within some seconds.",
		Needs:       account.Admin, Body: rest.BodyOf[xxlJobBody]()}, a.openXXLJob)
}

type xxlJobBody struct {
	Token        string    `json:"token,omitempty" doc:"The access token that the executors use (xxl.job.accessToken)"`
	Generate     bool      `json:"generate,omitempty" doc:"Generate an access token. The answer shows it once"`
	WithoutToken bool      `json:"without_token,omitempty" doc:"The executors have no access token"`
	Networks     *[]string `json:"networks,omitempty" doc:"Networks in which the executors are. Registrations and callbacks from elsewhere, and addresses elsewhere, are refused. Default: none. Loopback addresses must be named"`
	AppName      string    `json:"app_name,omitempty" doc:"The app name of the executors (xxl.job.executor.appname). Default: the group's name"`
	Capacity     int       `json:"capacity,omitempty" minimum:"1" maximum:"65536" doc:"How many runs an executor takes at the same time. Default: 256"`
}

type xxlJobGroup struct {
	Group     string   `json:"group"`
	AppName   string   `json:"app_name" doc:"The app name of the executors"`
	Networks  []string `json:"networks" doc:"Networks in which the executors are"`
	Capacity  int      `json:"capacity" doc:"How many runs an executor takes at the same time"`
	HasToken  bool     `json:"has_token" doc:"Whether the executors need an access token"`
	Encrypted bool     `json:"encrypted" doc:"Whether this console stores access tokens encrypted"`
	Token     string   `json:"token,omitempty" doc:"The generated access token. It is shown only in this answer"`
	Warnings  []string `json:"warnings" doc:"What is unsafe or useless about these settings"`
}

const (
	defaultCapacity = 256
	mostNetworks    = 64
	mostTokenBytes  = 256
	// publishedToken is the token in XXL-JOB's own configuration, which is public.
	publishedToken = "default_token"
)

func (a *API) xxlJob(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.Reader
}) (*rest.Output[xxlJobGroup], error) {
	if _, err := a.Visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	g, err := a.Gateways.Group(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return rest.Answer(a.xxlJobGroup(g, in.Language())), nil
}

// xxlJobGroup returns the form of an open group in answers, without its token. Its warnings are in a language.
func (a *API) xxlJobGroup(g gateway.Group, language explain.Language) xxlJobGroup {
	out := xxlJobGroup{
		Group: g.Name, AppName: g.App, Networks: []string{}, Capacity: g.Capacity, HasToken: g.Token != "" || g.Fault != nil, Encrypted: a.Gateways.Encrypts(), Warnings: []string{},
	}
	warn := func(english, chinese string, args ...any) {
		out.Warnings = append(out.Warnings, language.Format(english, chinese, args...))
	}
	for _, n := range g.Networks {
		out.Networks = append(out.Networks, n.String())
		if n.Bits() == 0 {
			warn("The network %s contains every address. A client with the access token can make the gateway call any of them.",
				"网络 %s 包含所有地址。持有访问令牌的客户端可以让网关调用其中任何地址。", n)
		}
	}
	switch {
	case g.Fault != nil:
		warn("The access token cannot be read, because it was encrypted with another --secret-key. The executors are refused until a token is set.",
			"无法读取访问令牌，因为它是用另一个 --secret-key 加密的。重新设置令牌之前，执行器会被拒绝。")
	case g.Token == publishedToken:
		warn("The access token is the published default of XXL-JOB, which is public. Only the networks protect the group.",
			"访问令牌是 XXL-JOB 公开的默认值。只有允许的网络在保护该组。")
	case g.Token == "":
		warn("The executors have no access token. Only the networks protect the group.", "执行器没有访问令牌。只有允许的网络在保护该组。")
	case !out.Encrypted:
		warn("The access token is stored unencrypted, because this console has no --secret-key.", "访问令牌未加密保存，因为此控制台没有设置 --secret-key。")
	}
	if len(g.Networks) == 0 {
		warn("No network is allowed, so no executor can register.", "没有允许任何网络，因此执行器无法注册。")
	}
	return out
}

func (a *API) openXXLJob(ctx context.Context, id auth.Identity, in *struct {
	GroupPath
	rest.Reader
	rest.JSONBody
}) (*rest.Output[xxlJobGroup], error) {
	if _, err := a.Visible.Group(ctx, id, in.Name); err != nil {
		return nil, err
	}
	var b xxlJobBody
	shape := in.Decode(&b)
	before, err := a.Gateways.Group(ctx, in.Name)
	isNew := domain.CodeOf(err) == domain.NotFound
	if err != nil && !isNew {
		return nil, err
	}
	next := before
	if isNew {
		next = gateway.Group{Name: in.Name, App: in.Name, Capacity: defaultCapacity}
	}
	var f domain.Faults
	generated := b.apply(&next, isNew, &f)
	if err := strict.AlsoFaulty(shape, f.Err("the settings for executors of XXL-JOB are not valid")); err != nil {
		return nil, err
	}
	if err := a.Gateways.OpenGroup(ctx, next); err != nil {
		return nil, err
	}
	var was any
	if !isNew {
		was = a.xxlJobGroup(before, explain.English)
	}
	a.Audit.Record(ctx, id, "group.xxl_job", "group/"+in.Name, was, a.xxlJobGroup(next, explain.English))
	out := a.xxlJobGroup(next, in.Language())
	out.Token = generated
	return rest.Answer(out), nil
}

// apply changes the settings of a group, and adds the faults of the body. It returns the token if it generated one.
func (b *xxlJobBody) apply(g *gateway.Group, isNew bool, f *domain.Faults) (generated string) {
	ways := 0
	for _, given := range []bool{b.Token != "", b.Generate, b.WithoutToken} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		f.Add("token", "excludes generate and without_token; give one of them")
	case ways == 0 && isNew:
		f.Add("token", "is required; or set generate or without_token")
	case ways == 0 && g.Fault != nil:
		f.Add("token", "is required, because the stored one cannot be read")
	case b.Generate:
		generated = rand.Text()
		g.Token = generated
	case ways == 1:
		g.Token = b.Token
	}
	if len(b.Token) > mostTokenBytes || strings.ContainsFunc(b.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		f.Add("token", fmt.Sprintf("must have at most %d characters, without spaces, in ASCII, because it is an HTTP header", mostTokenBytes))
	}
	if b.AppName != "" {
		if len(b.AppName) > 128 || strings.ContainsFunc(b.AppName, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) || strings.TrimSpace(b.AppName) != b.AppName {
			f.Add("app_name", "must have at most 128 bytes, without control characters and without spaces at its ends")
		}
		g.App = b.AppName
	}
	if b.Capacity != 0 {
		if b.Capacity < 1 || b.Capacity > 65536 {
			f.Add("capacity", "must be 1 to 65536")
		}
		g.Capacity = b.Capacity
	}
	if b.Networks != nil {
		g.Networks = networks(*b.Networks, f)
	}
	return generated
}

// networks reads networks or single addresses, and adds a fault for each that is none.
func networks(texts []string, f *domain.Faults) (out []netip.Prefix) {
	if len(texts) > mostNetworks {
		f.Add("networks", fmt.Sprintf("has %d networks; at most %d are allowed", len(texts), mostNetworks))
		return nil
	}
	for i, text := range texts {
		n, err := netip.ParsePrefix(text)
		if a, addrErr := netip.ParseAddr(text); addrErr == nil && a.Zone() == "" {
			n, err = a.Unmap().Prefix(a.Unmap().BitLen())
		}
		if err != nil {
			f.Add(fmt.Sprintf("networks[%d]", i), fmt.Sprintf("%.60q is neither a network nor an address; write 10.0.0.0/8 or 10.1.2.3", text))
			continue
		}
		out = append(out, n.Masked())
	}
	return out
}

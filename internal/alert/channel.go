package alert

import (
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belfryhq/belfry/internal/domain"
)

// Kind is the kind of a channel.
type Kind string

// The kinds of channels.
const (
	KindEmail    Kind = "email"    // SMTP
	KindWebhook  Kind = "webhook"  // JSON, signed
	KindSlack    Kind = "slack"    // an incoming webhook of Slack or a compatible service
	KindDingTalk Kind = "dingtalk" // a custom robot of DingTalk, with its sign secret
	KindWeCom    Kind = "wecom"    // a group robot of WeCom
	KindFeishu   Kind = "feishu"   // a custom bot of Feishu or Lark, with its sign secret
)

// Kinds lists all kinds in the order of the documentation.
var Kinds = []Kind{KindEmail, KindWebhook, KindSlack, KindDingTalk, KindWeCom, KindFeishu}

// Language is the language of a channel's default text.
type Language string

// The languages.
const (
	English Language = "en"
	Chinese Language = "zh"
)

// TLS is how the connection to a mail server is encrypted.
type TLS string

// The values of TLS.
const (
	StartTLS TLS = "starttls" // upgraded by STARTTLS before any mail command; an error if the server does not support it
	Implicit TLS = "tls"      // encrypted from the start
	NoTLS    TLS = "none"     // not encrypted; a password is then sent to this machine only
)

// Channel is a destination of alerts. The REST API uses its JSON form.
type Channel struct {
	Name        string   `json:"name"`
	Kind        Kind     `json:"kind"`
	Description string   `json:"description"`
	Language    Language `json:"language" doc:"Language of the default text: en or zh"`
	Subject     string   `json:"subject" doc:"Go template of the subject; empty: the default subject"`
	Text        string   `json:"text" doc:"Go template of the text; empty: the default text"`
	// URL is a secret, because the URL of a chat robot contains its access token.
	URL    string `json:"url,omitempty" doc:"Destination, for all kinds except email. Responses show it without its path. An update without it keeps the stored value"`
	Secret string `json:"secret,omitempty" doc:"Signing key of kinds webhook, dingtalk and feishu. Responses never show it. An update without it keeps the stored value"`
	Email  *Email `json:"email,omitempty" doc:"Mail settings, for kind email"`
	// Groups confines who may add the channel to a job. It does not change where alerts are sent.
	Groups []string `json:"groups" nullable:"false" doc:"Only jobs of these groups may be given the channel, except by admins; empty: jobs of all groups"`

	CreatedAt domain.Instant `json:"created_at"`
	UpdatedAt domain.Instant `json:"updated_at"`
}

// Email contains the settings of a channel of kind email.
type Email struct {
	Host     string   `json:"host" doc:"The mail server"`
	Port     int      `json:"port" doc:"Default: 587 with starttls, 465 with tls, 25 without"`
	TLS      TLS      `json:"tls" doc:"starttls (default), tls or none"`
	Username string   `json:"username,omitempty" doc:"User name for the mail server; empty: no authentication"`
	Password string   `json:"password,omitempty" doc:"Responses never show it. An update without it keeps the stored value"`
	From     string   `json:"from"`
	To       []string `json:"to"`
}

// Secrets contains the secret fields of a channel.
type Secrets struct {
	URL      string `json:"url,omitempty"`
	Secret   string `json:"secret,omitempty"`
	Password string `json:"password,omitempty"`
}

// The bounds of a channel.
const (
	maxTemplateBytes = 4 << 10
	maxRecipients    = 50
	maxGroups        = 100
	maxURLBytes      = 2048
	maxSecretBytes   = 512
)

// Masked replaces a secret in responses. An update that contains it keeps the stored secret.
const Masked = "********"

// For reports whether an operator may give the channel to jobs of the group.
func (c *Channel) For(group string) bool {
	return len(c.Groups) == 0 || slices.Contains(c.Groups, group)
}

// Split returns the channel without its secrets, and the secrets.
func (c Channel) Split() (Channel, Secrets) {
	s := Secrets{URL: c.URL, Secret: c.Secret}
	c.URL, c.Secret = "", ""
	if c.Email != nil {
		e := *c.Email
		s.Password, e.Password = e.Password, ""
		e.To = slices.Clone(e.To)
		c.Email = &e
	}
	return c, s
}

// Join is the inverse of Split.
func (c Channel) Join(s Secrets) Channel {
	c.URL, c.Secret = s.URL, s.Secret
	if c.Email != nil {
		e := *c.Email
		e.Password = s.Password
		c.Email = &e
	}
	return c
}

// Shown returns the channel with masked secrets and with its URL reduced to scheme and host.
func (c Channel) Shown() Channel {
	plain, s := c.Split()
	if s.URL != "" {
		s.URL = maskURL(s.URL)
	}
	if s.Secret != "" {
		s.Secret = Masked
	}
	if s.Password != "" {
		s.Password = Masked
	}
	return plain.Join(s)
}

func maskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return Masked
	}
	return u.Scheme + "://" + u.Host + "/" + Masked
}

// Keep copies secrets from the channel before the update if the update omits them or contains them masked.
func (c *Channel) Keep(before Channel) {
	if c.Kind != before.Kind {
		return
	}
	if c.URL == "" || c.URL == maskURL(before.URL) {
		c.URL = before.URL
	}
	if c.Secret == "" || c.Secret == Masked {
		c.Secret = before.Secret
	}
	if c.Email == nil || before.Email == nil || (c.Email.Password != "" && c.Email.Password != Masked) {
		return
	}
	// A password is sent only to the server that it was entered for.
	if e, b := c.Email, before.Email; b.Password != "" && e.Username != "" && e.Host == b.Host && e.Port == b.Port && e.TLS == b.TLS && e.Username == b.Username {
		e.Password = b.Password
	}
}

// Normalize sets empty fields to their defaults.
func (c *Channel) Normalize() {
	if c.Groups == nil {
		c.Groups = []string{}
	}
	if c.Language == "" {
		c.Language = English
	}
	if c.Email == nil {
		return
	}
	if c.Email.TLS == "" {
		c.Email.TLS = StartTLS
	}
	if c.Email.Port == 0 {
		c.Email.Port = map[TLS]int{StartTLS: 587, Implicit: 465, NoTLS: 25}[c.Email.TLS]
	}
	if c.Email.To == nil {
		c.Email.To = []string{}
	}
}

// Validate returns an Invalid error that names every faulty field.
func (c *Channel) Validate() error {
	var f domain.Faults
	if !domain.ValidChannelName(c.Name) {
		f.Add("name", domain.ChannelNameRule)
	}
	known := slices.Contains(Kinds, c.Kind)
	if !known {
		f.Add("kind", fmt.Sprintf("%q is not known; use one of %s", c.Kind, list(Kinds)))
	}
	if c.Language != English && c.Language != Chinese {
		f.Add("language", fmt.Sprintf("%q is not known; use en or zh", c.Language))
	}
	line(&f, "description", c.Description, 1024)
	if len(c.Groups) > maxGroups {
		f.Add("groups", fmt.Sprintf("at most %d are allowed", maxGroups))
	}
	for i, g := range c.Groups {
		if !domain.ValidGroupName(g) {
			f.Add(fmt.Sprintf("groups[%d]", i), domain.GroupNameRule)
		}
	}
	for _, t := range []struct{ field, text string }{{"subject", c.Subject}, {"text", c.Text}} {
		if _, err := compile(t.text); err != nil {
			f.Add(t.field, err.Error())
		}
	}
	if known { // the kind determines which settings are allowed
		c.validateURL(&f)
		c.validateSecret(&f)
	}
	switch {
	case !known:
	case c.Kind == KindEmail && c.Email == nil:
		f.Add("email", "is required for a channel of kind email")
	case c.Kind == KindEmail:
		c.Email.validate(&f)
	case c.Email != nil:
		f.Add("email", fmt.Sprintf("is not for a channel of kind %s", c.Kind))
	}
	return f.Err("the channel is not valid")
}

func (c *Channel) validateURL(f *domain.Faults) {
	if c.Kind == KindEmail {
		if c.URL != "" {
			f.Add("url", "is not for a channel of kind email")
		}
		return
	}
	if c.URL == "" {
		f.Add("url", "is required: where to deliver")
		return
	}
	u, err := url.Parse(c.URL)
	switch {
	case len(c.URL) > maxURLBytes:
		f.Add("url", fmt.Sprintf("is over %d bytes", maxURLBytes))
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "":
		f.Add("url", "must be an http or https URL")
	case u.User != nil:
		f.Add("url", "must not contain a user or password; a receiver authenticates a webhook by its signature")
	case u.Path == "/"+Masked:
		f.Add("url", "is the masked URL of another channel")
	}
}

func (c *Channel) validateSecret(f *domain.Faults) {
	switch {
	case c.Secret == "":
	case c.Kind != KindWebhook && c.Kind != KindDingTalk && c.Kind != KindFeishu:
		f.Add("secret", fmt.Sprintf("is not for a channel of kind %s", c.Kind))
	case c.Secret == Masked:
		f.Add("secret", "is masked, but no secret is stored")
	case len(c.Secret) > maxSecretBytes || !utf8.ValidString(c.Secret):
		f.Add("secret", fmt.Sprintf("must be text of up to %d bytes", maxSecretBytes))
	case c.Kind == KindWebhook && len(c.Secret) < 16:
		f.Add("secret", "must have at least 16 bytes, because signatures with a shorter secret could be guessed")
	}
}

func (e *Email) validate(f *domain.Faults) {
	if e.Host == "" || len(e.Host) > 253 || strings.ContainsFunc(e.Host, func(r rune) bool { return r <= ' ' || strings.ContainsRune("/@?#", r) }) {
		f.Add("email.host", "must be the name or address of the mail server")
	}
	if e.Port < 1 || e.Port > 65535 {
		f.Add("email.port", "must be 1 to 65535")
	}
	if e.TLS != StartTLS && e.TLS != Implicit && e.TLS != NoTLS {
		f.Add("email.tls", fmt.Sprintf("%q is not known; use one of starttls, tls, none", e.TLS))
	}
	line(f, "email.username", e.Username, 256)
	switch {
	case e.Password == Masked:
		f.Add("email.password", "is masked, but no password is stored for this server and user")
	case len(e.Password) > maxSecretBytes || !utf8.ValidString(e.Password):
		f.Add("email.password", fmt.Sprintf("must be text of up to %d bytes", maxSecretBytes))
	case e.Username != "" && e.Password == "":
		f.Add("email.password", "is required with a username; a stored password is kept only for the same server and user")
	case e.Username == "" && e.Password != "":
		f.Add("email.username", "is required with a password")
	}
	address(f, "email.from", e.From)
	if len(e.To) == 0 || len(e.To) > maxRecipients {
		f.Add("email.to", fmt.Sprintf("must name 1 to %d recipients", maxRecipients))
	}
	for i, to := range e.To {
		address(f, fmt.Sprintf("email.to[%d]", i), to)
	}
}

func address(f *domain.Faults, field, v string) {
	if _, err := mail.ParseAddress(v); err != nil || len(v) > 320 || strings.ContainsFunc(v, unicode.IsControl) {
		f.Add(field, `must be a mail address, such as ops@example.org or "Belfry <belfry@example.org>"`)
	}
}

// line adds a fault unless v is a single line of text.
func line(f *domain.Faults, field, v string, most int) {
	if utf8.RuneCountInString(v) > most {
		f.Add(field, fmt.Sprintf("has more than %d characters", most))
	} else if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
		f.Add(field, "must be text without control characters")
	}
}

func list[T ~string](values []T) string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return strings.Join(names, ", ")
}

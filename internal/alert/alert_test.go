package alert_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
	"github.com/belfryhq/belfry/internal/engine"
	"github.com/belfryhq/belfry/internal/explain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)

// nasty is an example of untrusted text.
const nasty = "<!channel> *bold* <https://evil.test|click> & <at user_id=\"all\">x</at>\x1b[31m\x07\r\nSubject: forged \u202egnp"

func message() alert.Message {
	at := domain.At(now)
	return alert.Message{
		ID: "42", Kind: domain.AlertFailed, At: at, JobID: 7, Job: nasty, Group: "default", RunID: "r-1", URL: "https://belfry.test/runs/r-1",
		State: domain.Failed, Reason: "timeout", Message: nasty, Instance: "one", Attempt: 3, MaxAttempts: 3, FireTime: &at,
		LocalTime: "2026-03-29 03:30:00 CEST", Count: 3, Since: &at, Log: slices.Repeat([]string{nasty}, 30),
	}
}

// hook is a test server for chat and webhook channels.
type hook struct {
	*httptest.Server
	requests []*http.Request
	bodies   []string
}

func newHook(t *testing.T, status int, answer string) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		h.requests, h.bodies = append(h.requests, r), append(h.bodies, string(b))
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	t.Cleanup(h.Close)
	return h
}

func newSender(t *testing.T, edit ...func(*alert.Config)) *alert.Sender {
	c := alert.Config{Now: func() time.Time { return now }, Timeout: 5 * time.Minute}
	for _, e := range edit {
		e(&c)
	}
	s := alert.NewSender(c)
	t.Cleanup(s.Close)
	return s
}

// send delivers a message to a server through the channel, and returns the request's body and the text in it.
func send(t *testing.T, h *hook, c alert.Channel) map[string]any {
	t.Helper()
	c.Name, c.URL = "ops", h.URL+"/hook?token=s3cret"
	c.Normalize()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if _, err := newSender(t).Send(t.Context(), &c, message()); err != nil {
		t.Fatal(err)
	}
	if len(h.bodies) != 1 {
		t.Fatalf("%d requests", len(h.bodies))
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(h.bodies[0]), &body); err != nil {
		t.Fatal(err)
	}
	return body
}

func sum(key, text string) []byte {
	h := hmac.New(sha256.New, []byte(key))
	io.WriteString(h, text)
	return h.Sum(nil)
}

func TestWebhook(t *testing.T) {
	h := newHook(t, 200, "thanks")
	body := send(t, h, alert.Channel{Kind: alert.KindWebhook, Secret: "0123456789abcdef"})
	r := h.requests[0]
	at := r.Header.Get("Belfry-Timestamp")
	if at != strconv.FormatInt(now.Unix(), 10) {
		t.Errorf("the timestamp is %q", at)
	}
	if got, want := r.Header.Get("Belfry-Signature"), "v1="+hex.EncodeToString(sum("0123456789abcdef", at+"."+h.bodies[0])); got != want {
		t.Errorf("the signature is %q, want %q", got, want)
	}
	if r.Header.Get("Belfry-Alert-Id") != "42" || body["id"] != "42" || body["kind"] != "failed" || body["job_id"] != 7.0 || body["count"] != 3.0 ||
		body["run_id"] != "r-1" || body["v"] != 1.0 || body["fire_time"] != "2026-03-29T01:30:00.000Z" {
		t.Errorf("headers %v, body %s", r.Header, h.bodies[0])
	}
	if log := body["log"].([]any); len(log) != alert.MaxLogLines || strings.ContainsAny(log[0].(string), "\x1b\x07\r\n\u202e") {
		t.Errorf("the log is %q", log)
	}
}

func TestSlack(t *testing.T) {
	text := send(t, newHook(t, 200, "ok"), alert.Channel{Kind: alert.KindSlack})["text"].(string)
	if strings.ContainsAny(text, "<>") || !strings.Contains(text, "&lt;!channel&gt;") || !strings.Contains(text, "https://belfry.test/runs/r-1") {
		t.Errorf("it says %s", text)
	}
	// Markup in the channel's template applies; text from the job is escaped.
	text = send(t, newHook(t, 200, "ok"), alert.Channel{Kind: alert.KindSlack, Text: "<!here> {{.Job}}"})["text"].(string)
	if !strings.Contains(text, "<!here> &lt;!channel&gt;") {
		t.Errorf("it says %s", text)
	}
}

func TestDingTalk(t *testing.T) {
	h := newHook(t, 200, `{"errcode":0,"errmsg":"ok"}`)
	body := send(t, h, alert.Channel{Kind: alert.KindDingTalk, Secret: "SECabc", Language: alert.Chinese})
	q := h.requests[0].URL.Query()
	at := q.Get("timestamp")
	if want := base64.StdEncoding.EncodeToString(sum("SECabc", at+"\nSECabc")); q.Get("sign") != want || at != strconv.FormatInt(now.UnixMilli(), 10) || q.Get("token") != "s3cret" {
		t.Errorf("the query is %v, want sign %s", q, want)
	}
	if body["msgtype"] != "text" || !strings.Contains(h.bodies[0], "失败 3 次") {
		t.Errorf("it says %s", h.bodies[0])
	}
}

func TestWeCom(t *testing.T) {
	h := newHook(t, 200, `{"errcode":0,"errmsg":"ok"}`)
	body := send(t, h, alert.Channel{Kind: alert.KindWeCom})
	if text := body["text"].(map[string]any)["content"].(string); body["msgtype"] != "text" || len(text) > 2048 || !strings.HasSuffix(text, "…") {
		t.Errorf("it says %d bytes: %s", len(text), h.bodies[0])
	}
}

func TestFeishu(t *testing.T) {
	h := newHook(t, 200, `{"code":0,"msg":"success"}`)
	body := send(t, h, alert.Channel{Kind: alert.KindFeishu, Secret: "s", Language: alert.Chinese})
	at := strconv.FormatInt(now.Unix(), 10)
	if want := base64.StdEncoding.EncodeToString(sum(at+"\ns", "")); body["sign"] != want || body["timestamp"] != at {
		t.Errorf("signed %v at %v, want %s", body["sign"], body["timestamp"], want)
	}
	post := body["content"].(map[string]any)["post"].(map[string]any)["zh_cn"].(map[string]any)
	part := post["content"].([]any)[0].([]any)[0].(map[string]any)
	if body["msg_type"] != "post" || part["tag"] != "text" || !strings.Contains(part["text"].(string), "失败") || strings.Contains(post["title"].(string), "\n") {
		t.Errorf("it says %s", h.bodies[0])
	}
}

// The server's answer determines whether an error is permanent. The error's text contains no secret.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		kind      alert.Kind
		status    int
		answer    string
		permanent bool
		says      string
	}{
		{alert.KindWebhook, 500, "broken", false, "500"},
		{alert.KindWebhook, 429, "", false, "429"},
		{alert.KindWebhook, 404, "nobody", true, "404"},
		{alert.KindWebhook, 302, "", true, "302"},
		{alert.KindDingTalk, 200, `{"errcode":310000,"errmsg":"sign not match"}`, true, "sign not match"},
		{alert.KindDingTalk, 200, `{"errcode":-1,"errmsg":"busy"}`, false, "busy"},
		{alert.KindWeCom, 200, `{"errcode":93000,"errmsg":"invalid webhook url"}`, true, "invalid"},
		{alert.KindFeishu, 200, `{"code":19024,"msg":"Key Words Not Found"}`, true, "Key Words"},
		{alert.KindFeishu, 200, `<html>`, false, "not that of a chat robot"},
	} {
		h := newHook(t, test.status, test.answer)
		c := alert.Channel{Name: "ops", Kind: test.kind, URL: h.URL + "/hook?token=s3cret"}
		_, err := newSender(t).Send(t.Context(), &c, message())
		if err == nil || alert.Permanent(err) != test.permanent || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s %d %s: %v, permanent %v", test.kind, test.status, test.answer, err, alert.Permanent(err))
		}
	}
	c := alert.Channel{Name: "ops", Kind: alert.KindWebhook, URL: "http://127.0.0.1:1/?token=s3cret"}
	if _, err := newSender(t).Send(t.Context(), &c, message()); err == nil || alert.Permanent(err) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("nobody listens: %v", err)
	}
}

// The Sender checks the resolved address when it connects, whatever the host name.
func TestForbiddenAddresses(t *testing.T) {
	h := newHook(t, 200, "")
	private := newSender(t, func(c *alert.Config) { c.DenyPrivate = true })
	for _, test := range []struct {
		sender *alert.Sender
		url    string
	}{
		{newSender(t), "http://169.254.169.254/latest/meta-data"},
		{newSender(t), "http://[fd00:ec2::254]/"},
		{newSender(t), "http://[::ffff:169.254.1.1]/"},
		{newSender(t), "http://[64:ff9b::169.254.169.254]/"},
		{newSender(t), "http://[2002:a9fe:a9fe::1]/"},
		{newSender(t), "http://0.0.0.0/"},
		{private, "http://[64:ff9b::10.1.2.3]/"},
		{private, "http://[64:ff9b:1::1]/"},
		{private, h.URL},
		{private, strings.Replace(h.URL, "127.0.0.1", "localhost", 1)},
		{private, "http://10.1.2.3/"},
		{private, "http://[::ffff:192.168.1.1]/"},
		{private, "http://100.64.0.1/"},
		{private, "http://[fc00::1]/"},
	} {
		c := alert.Channel{Name: "ops", Kind: alert.KindWebhook, URL: test.url}
		if _, err := test.sender.Send(t.Context(), &c, message()); !alert.Permanent(err) || !strings.Contains(err.Error(), "address") {
			t.Errorf("%s: %v", test.url, err)
		}
	}
	if len(h.bodies) != 0 {
		t.Error("the sender connected to a private address")
	}
	c := alert.Channel{Name: "ops", Kind: alert.KindEmail, Email: &alert.Email{Host: "127.0.0.1", Port: 25, TLS: alert.NoTLS, From: "a@b.test", To: []string{"c@d.test"}}}
	if _, err := private.Send(t.Context(), &c, message()); !alert.Permanent(err) {
		t.Errorf("mail: %v", err)
	}
}

// certificate returns the certificate of a test server and the roots that verify it.
func certificate(t *testing.T) (server, client *tls.Config) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	t.Cleanup(s.Close)
	return &tls.Config{Certificates: s.TLS.Certificates}, s.Client().Transport.(*http.Transport).TLSClientConfig
}

func TestEmail(t *testing.T) {
	server, client := certificate(t)
	trusting := func(c *alert.Config) { c.TLS = client }
	for _, way := range []alert.TLS{alert.StartTLS, alert.Implicit} {
		s := newMailServer(t, server, func(s *mailServer) { s.implicit = way == alert.Implicit })
		c := alert.Channel{Name: "ops", Kind: alert.KindEmail, Email: &alert.Email{
			Host: "127.0.0.1", Port: s.port(), TLS: way, Username: "belfry", Password: "hunter2",
			From: "Belfry <belfry@example.org>", To: []string{"ops@example.org", "Ann <ann@example.org>"},
		}}
		c.Normalize()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := newSender(t, trusting).Send(t.Context(), &c, message()); err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		if len(s.logins) != 1 || s.logins[0] != "\x00belfry\x00hunter2" {
			t.Errorf("%s: logins %q", way, s.logins)
		}
		got := s.received()
		if len(got) != 1 {
			t.Fatalf("%s: %d mails", way, len(got))
		}
		m, err := mail.ReadMessage(strings.NewReader(got[0]))
		if err != nil {
			t.Fatal(err)
		}
		subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
		body, _ := io.ReadAll(quotedprintable.NewReader(m.Body))
		if err != nil || !strings.HasPrefix(subject, "[Belfry] default/") || strings.ContainsAny(subject, "\r\n") || !strings.Contains(subject, "Subject: forged") ||
			!strings.Contains(string(body), "Reason: timeout") || m.Header.Get("X-Belfry-Alert-Id") != "42" || !strings.Contains(m.Header.Get("Message-Id"), "belfry-alert-42.ops@example.org") {
			t.Errorf("%s: subject %q, headers %v, body %s", way, subject, m.Header, body)
		}
	}
}

// A password is sent only on an encrypted connection to a verified server.
func TestEmailRefused(t *testing.T) {
	server, client := certificate(t)
	trusting := func(c *alert.Config) { c.TLS = client }
	for _, test := range []struct {
		name      string
		way       alert.TLS
		password  string
		server    func(*mailServer)
		config    func(*alert.Config)
		permanent bool
	}{
		{"no STARTTLS", alert.StartTLS, "hunter2", func(s *mailServer) { s.plain = true }, trusting, false},
		{"unknown certificate", alert.StartTLS, "hunter2", func(*mailServer) {}, func(*alert.Config) {}, false},
		{"wrong password", alert.StartTLS, "hunter3", func(*mailServer) {}, trusting, false},
		{"unknown recipient", alert.NoTLS, "", func(s *mailServer) { s.refuse = "550 no such user" }, trusting, true},
		{"busy", alert.NoTLS, "", func(s *mailServer) { s.refuse = "451 try later" }, trusting, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newMailServer(t, server, test.server)
			c := alert.Channel{Name: "ops", Kind: alert.KindEmail, Email: &alert.Email{
				Host: "127.0.0.1", Port: s.port(), TLS: test.way, Password: test.password, From: "belfry@example.org", To: []string{"ops@example.org"},
			}}
			if test.password != "" {
				c.Email.Username = "belfry"
			}
			_, err := newSender(t, test.config).Send(t.Context(), &c, message())
			if err == nil || alert.Permanent(err) != test.permanent || strings.Contains(err.Error(), "hunter") {
				t.Errorf("got %v, permanent %v", err, alert.Permanent(err))
			}
			if len(s.received()) != 0 {
				t.Error("a mail was sent")
			}
			for _, l := range s.logins {
				if strings.Contains(l, "in the clear") {
					t.Errorf("a password was sent without encryption: %q", l)
				}
			}
		})
	}
}

// Templates that could run long or have a long output are rejected when the channel is saved.
func TestTemplates(t *testing.T) {
	for _, test := range []struct{ text, says string }{
		{"{{.Job}} {{range .Log}}{{.}}{{end}}", ""},
		{`{{if eq .Kind "failed"}}{{upper .Reason}}{{else}}{{.Headline}}{{end}} {{range $i, $l := .Log}}{{$i}} {{$l}}{{end}}`, ""},
		{"{{.Nothing}}", "does not work"},
		{"{{if .Job}}", "is not a Go template"},
		{`{{printf "%1000000d" 1}}`, "must not call printf"},
		{`{{.Job | js | js}}`, "must not call js"},
		{`{{with $x := print .Job .Job}}{{$x}}{{end}}`, "must not call print"},
		{`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`, "must not define"},
		{`{{template ""}}`, "must not call templates"},
		{"{{range 1000000000}}{{end}}", "may range over .Log only"},
		{"{{range .Count}}{{end}}", "may range over .Log only"},
		{"{{range .Log}}{{range $.Log}}{{range $.Log}}{{end}}{{end}}{{end}}", "too many nested ranges"},
		{strings.Repeat("x", 5000), "over 4096 bytes"},
	} {
		c := alert.Channel{Name: "ops", Kind: alert.KindWebhook, URL: "https://example.org/", Language: alert.English, Text: test.text, Subject: test.text}
		err := c.Validate()
		if (err == nil) != (test.says == "") || (err != nil && !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%.80s: %v", test.text, err)
		}
	}
	long := alert.Channel{Kind: alert.KindWebhook, Text: strings.Repeat("{{range .Log}}{{range $.Log}}{{.}}{{end}}{{end}}", 60)}
	if said := alert.Render(&long, message()); len(said.Text) > 16<<10 || len(said.Text) < 15<<10 {
		t.Errorf("the output of a long template has %d bytes", len(said.Text))
	}
	broken := alert.Channel{Kind: alert.KindWebhook, Text: "{{index .Log 29}}"}
	if said := alert.Render(&broken, message()); !strings.Contains(said.Text, "Reason: timeout") {
		t.Errorf("the output of a template that fails is %q", said.Text)
	}
}

// The default texts of each kind in both languages.
func TestDefaultTexts(t *testing.T) {
	at := domain.At(now)
	base := alert.Message{ID: "1", Job: "nightly", Group: "default", Count: 1, Since: &at, RunID: "r-1", LocalTime: "2026-03-29 03:30:00 CEST"}
	failed, recovered, missed, late := base, base, base, base
	failed.RunbookURL = "https://wiki.test/nightly"
	failed.Kind, failed.Reason, failed.Message, failed.Attempt, failed.MaxAttempts, failed.Log = domain.AlertFailed, "timeout", "too slow", 2, 2, []string{"one"}
	recovered.Kind, recovered.Count = domain.AlertRecovered, 4
	missed.Kind, missed.Count, missed.RunID, missed.LocalTime, missed.Missed = domain.AlertMissed, 60, "", "", &engine.MissedAt{First: at, Last: at, Why: "no scheduler"}
	late.Kind, late.LatenessMS = domain.AlertLate, 90_000
	lost := base
	lost.Kind, lost.Reason, lost.Message = domain.AlertFailed, domain.ReasonLost, "instance i1 died"
	lost.Parts = explain.Join(explain.Of(explain.InstanceDied, "i1")).Parts(lost.Message)
	for _, test := range []struct {
		lang    alert.Language
		m       alert.Message
		subject string
		text    string
	}{
		{alert.English, failed, "[Belfry] default/nightly failed", "default/nightly failed\nReason: timeout\nMessage: too slow\nFire time: 2026-03-29 03:30:00 CEST\nAttempt: 2 of 2\nRunbook: https://wiki.test/nightly\nRun: r-1\n\nLast lines of its log:\n  one"},
		{alert.English, recovered, "[Belfry] default/nightly recovered", "default/nightly recovered after 4 failed, the first at 2026-03-29 01:30:00 UTC\nFire time: 2026-03-29 03:30:00 CEST\nRun: r-1"},
		{alert.English, missed, "[Belfry] default/nightly missed 60 fire times", "default/nightly missed 60 fire times since 2026-03-29 01:30:00 UTC\nMissed: 2026-03-29 01:30:00 UTC to 2026-03-29 01:30:00 UTC: no scheduler"},
		{alert.English, late, "[Belfry] default/nightly started late", "default/nightly started late\nLate by: 1m30s\nFire time: 2026-03-29 03:30:00 CEST\nRun: r-1"},
		{alert.Chinese, failed, "[Belfry] default/nightly 失败", "default/nightly 失败\n原因:timeout\n信息:too slow\n触发时间:2026-03-29 03:30:00 CEST\n尝试:第 2 次,共 2 次\n处理手册:https://wiki.test/nightly\n运行:r-1\n\n日志末尾:\n  one"},
		{alert.English, lost, "[Belfry] default/nightly failed", "default/nightly failed\nReason: lost\nMessage: instance i1 died\nFire time: 2026-03-29 03:30:00 CEST\nRun: r-1"},
		{alert.Chinese, lost, "[Belfry] default/nightly 失败", "default/nightly 失败\n原因:lost\n信息:实例 i1 已失联\n触发时间:2026-03-29 03:30:00 CEST\n运行:r-1"},
		{alert.Chinese, recovered, "[Belfry] default/nightly 已恢复", "default/nightly 已恢复(此前失败 4 次,首次于 2026-03-29 01:30:00 UTC)\n触发时间:2026-03-29 03:30:00 CEST\n运行:r-1"},
		{alert.Chinese, missed, "[Belfry] default/nightly 错过 60 次触发", "default/nightly 错过 60 次触发(自 2026-03-29 01:30:00 UTC 起)\n错过:2026-03-29 01:30:00 UTC 至 2026-03-29 01:30:00 UTC(no scheduler)"},
		{alert.Chinese, late, "[Belfry] default/nightly 延迟启动", "default/nightly 延迟启动\n延迟:1m30s\n触发时间:2026-03-29 03:30:00 CEST\n运行:r-1"},
	} {
		got := alert.Render(&alert.Channel{Kind: alert.KindWebhook, Language: test.lang}, test.m)
		if got.Subject != test.subject || got.Text != test.text {
			t.Errorf("%s %s:\n%q\n%q\nwant\n%q", test.lang, test.m.Kind, got.Subject, got.Text, test.text)
		}
	}
}

// Secrets are masked in responses and kept by an update that leaves them out. A password is kept only for the same server.
func TestSecrets(t *testing.T) {
	c := alert.Channel{Name: "ops", Kind: alert.KindWebhook, URL: "https://example.org/a?b=c", Secret: "0123456789abcdef"}
	shown := c.Shown()
	if text, _ := json.Marshal(shown); strings.Contains(string(text), "b=c") || strings.Contains(string(text), c.Secret) || !strings.Contains(string(text), "https://example.org/") {
		t.Errorf("shown: %s", text)
	}
	for _, update := range []alert.Channel{shown, {Kind: alert.KindWebhook}} {
		if update.Keep(c); update.URL != c.URL || update.Secret != c.Secret {
			t.Errorf("kept: %+v", update)
		}
	}
	m := alert.Channel{Name: "m", Kind: alert.KindEmail, Email: &alert.Email{Host: "a", Port: 587, TLS: alert.StartTLS, Username: "u", Password: "p", From: "a@b.c", To: []string{"a@b.c"}}}
	same, moved := m.Shown(), m.Shown()
	moved.Email.Host = "evil"
	same.Keep(m)
	moved.Keep(m)
	if same.Email.Password != "p" || moved.Email.Password == "p" || m.Email.Password != "p" {
		t.Errorf("kept %+v and %+v", same.Email, moved.Email)
	}
	same.Language, moved.Language = alert.English, alert.English
	if same.Validate() != nil || moved.Validate() == nil {
		t.Errorf("%v, %v", same.Validate(), moved.Validate())
	}
}

// An alert does not show the secrets of a run's message, in any channel, template or language.
func TestSecretsOfTheMessageAreMasked(t *testing.T) {
	const text = "exit status 1: cannot log in with password=hunter2"
	m := alert.Message{Message: text, Parts: []explain.Explanation{{Code: explain.Text, Text: text}}}.Bounded()
	if want := "exit status 1: cannot log in with password=•••"; m.Message != want || m.Parts[0].Text != want {
		t.Errorf("%q, %q, want %q", m.Message, m.Parts[0].Text, want)
	}
	if again := m.Bounded(); again.Message != m.Message {
		t.Errorf("masked twice: %q", again.Message)
	}
}

func TestBadChannels(t *testing.T) {
	var e *domain.Error
	bad := alert.Channel{Name: "No!", Kind: "pigeon", Language: "xx", Description: "a\nb", Subject: "{{", Text: "{{print}}", URL: "ftp://x", Secret: "s", Email: &alert.Email{}}
	want := []string{"name", "kind", "language", "description", "subject", "text"}
	if err := bad.Validate(); !errors.As(err, &e) || len(e.Fields) != len(want) {
		t.Fatalf("got %v", err)
	}
	for i, f := range e.Fields {
		if f.Location != want[i] {
			t.Errorf("field %d is %s, want %s", i, f.Location, want[i])
		}
	}
	bad = alert.Channel{Name: "m", Kind: alert.KindEmail, Language: alert.English, URL: "https://x/", Secret: "s", Email: &alert.Email{Host: "a/b", TLS: "x", Password: "p", From: "x", To: []string{"a@b\r\nBcc: c@d"}}}
	want = []string{"url", "secret", "email.host", "email.port", "email.tls", "email.username", "email.from", "email.to[0]"}
	if err := bad.Validate(); !errors.As(err, &e) || len(e.Fields) != len(want) {
		t.Fatalf("got %v", err)
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("{{.Job}} {{range .Log}}{{.}}{{end}}")
	f.Add("{{with .Missed}}{{end}}")
	f.Fuzz(func(t *testing.T, text string) {
		c := alert.Channel{Kind: alert.KindSlack, Text: text, Subject: text}
		if said := alert.Render(&c, message()); len(said.Text) > 16<<10 {
			t.Errorf("%d bytes", len(said.Text))
		}
	})
}

// The reason of missed fire times is in the language of the channel, even after the alert was stored in a queue. If a reason is
// known only as an English sentence, it stays English.
func TestMissedReasonInTheLanguageOfTheChannel(t *testing.T) {
	at := domain.At(now)
	why := explain.Of(explain.NoScheduler, explain.OutcomeSkip, 0, 5000, 60_000).Explanation()
	stored, err := json.Marshal(engine.MissedAt{First: at, Last: at, Why: why.Text, Code: why.Code, Args: why.Args})
	if err != nil {
		t.Fatal(err)
	}
	var missed engine.MissedAt
	if err := json.Unmarshal(stored, &missed); err != nil {
		t.Fatal(err)
	}
	old := engine.MissedAt{First: at, Last: at, Why: "as it was"}
	for _, tt := range []struct {
		missed engine.MissedAt
		lang   alert.Language
		want   string
	}{
		{missed, alert.English, "no scheduler served them within 5s of their due instant (up to 1m0s late); the policy is skip"},
		{missed, alert.Chinese, "调度器未能在应触发时刻后的 5 秒内处理（最多迟了 1 分）；策略为 skip，不补跑"},
		{old, alert.Chinese, "as it was"},
	} {
		m := alert.Message{ID: "1", Kind: domain.AlertMissed, Job: "nightly", Group: "default", Count: 1, Missed: &tt.missed}
		if got := alert.Render(&alert.Channel{Kind: alert.KindWebhook, Language: tt.lang}, m); !strings.Contains(got.Text, tt.want) {
			t.Errorf("in %s: %s", tt.lang, got.Text)
		}
	}
}

package alert

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
)

// Sign returns the signature of a webhook: "v1=" and, in hexadecimal, the HMAC-SHA256 of "<timestamp>.<body>" with the channel's
// secret as the key. The header Belfry-Timestamp contains the timestamp in Unix seconds, so that a receiver can reject old
// requests.
func Sign(secret, timestamp string, body []byte) string {
	return "v1=" + hex.EncodeToString(mac(secret, timestamp+"."+string(body)))
}

func mac(secret, text string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(text)) // documented to never fail
	return h.Sum(nil)
}

// hook is the body of a webhook: the message, and its subject and text for people.
type hook struct {
	V int `json:"v"`
	Message
	Channel string `json:"channel"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

func (s *Sender) webhook(ctx context.Context, c *Channel, m Message) (string, error) {
	said := Render(c, m)
	body, err := json.Marshal(hook{V: 1, Message: m, Channel: c.Name, Subject: said.Subject, Text: said.Text})
	if err != nil {
		return "", &permanentError{err}
	}
	h := http.Header{"Belfry-Alert-Id": {m.ID}, "Idempotency-Key": {m.ID}}
	if c.Secret != "" {
		at := strconv.FormatInt(s.Now().Unix(), 10)
		h.Set("Belfry-Timestamp", at)
		h.Set("Belfry-Signature", Sign(c.Secret, at, body))
	}
	answer, err := s.post(ctx, c.URL, body, h)
	return tidy(answer, maxFieldRunes), err
}

func (s *Sender) slack(ctx context.Context, c *Channel, m Message) (string, error) {
	said := Render(c, m)
	answer, err := s.postJSON(ctx, c.URL, map[string]any{"text": said.Subject + "\n" + said.Text, "unfurl_links": false, "unfurl_media": false})
	return tidy(answer, maxFieldRunes), err
}

// dingTalk sends the message as text, not markdown, so that its content cannot act as markup.
func (s *Sender) dingTalk(ctx context.Context, c *Channel, m Message) (string, error) {
	target, err := url.Parse(c.URL)
	if err != nil {
		return "", &permanentError{errors.New("the URL is not valid")}
	}
	if c.Secret != "" {
		at := strconv.FormatInt(s.Now().UnixMilli(), 10)
		q := target.Query()
		q.Set("timestamp", at)
		q.Set("sign", base64.StdEncoding.EncodeToString(mac(c.Secret, at+"\n"+c.Secret)))
		target.RawQuery = q.Encode()
	}
	said := Render(c, m)
	answer, err := s.postJSON(ctx, target.String(), map[string]any{
		"msgtype": "text", "text": map[string]string{"content": said.Subject + "\n" + said.Text}, "msgUuid": m.ID,
	})
	return robot(answer, err, 300001, 310000, 400013, 400101)
}

func (s *Sender) weCom(ctx context.Context, c *Channel, m Message) (string, error) {
	said := Render(c, m)
	text := said.Subject + "\n" + said.Text
	answer, err := s.postJSON(ctx, c.URL, map[string]any{"msgtype": "text", "text": map[string]string{"content": cutBytes(text, maxWeComBytes)}})
	return robot(answer, err, 93000, 40008)
}

// maxWeComBytes is the maximum size of a text for a group robot of WeCom.
const maxWeComBytes = 2048

func cutBytes(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := most - len("…")
	for end > 0 && s[end]&0xc0 == 0x80 {
		end--
	}
	return s[:end] + "…"
}

// feishu sends a post. The parts of a post are typed, so a text part cannot become a link or mention people.
func (s *Sender) feishu(ctx context.Context, c *Channel, m Message) (string, error) {
	said := Render(c, m)
	lang := map[Language]string{Chinese: "zh_cn"}[c.Language]
	if lang == "" {
		lang = "en_us"
	}
	type part struct {
		Tag  string `json:"tag"`
		Text string `json:"text"`
	}
	body := map[string]any{"msg_type": "post", "content": map[string]any{"post": map[string]any{lang: map[string]any{
		"title": said.Subject, "content": [][]part{{{"text", said.Text}}},
	}}}}
	if c.Secret != "" {
		at := strconv.FormatInt(s.Now().Unix(), 10)
		body["timestamp"] = at
		// Feishu uses the timestamp and the secret as the HMAC key, and signs an empty text.
		body["sign"] = base64.StdEncoding.EncodeToString(mac(at+"\n"+c.Secret, ""))
	}
	answer, err := s.postJSON(ctx, c.URL, body)
	return robot(answer, err, 9499, 19001, 19021, 19022, 19024)
}

func (s *Sender) postJSON(ctx context.Context, target string, v any) (string, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return "", &permanentError{err}
	}
	return s.post(ctx, target, body, nil)
}

// robot interprets the response of a chat robot. Robots answer with status 200 also on errors. hopeless lists the codes of
// permanent errors: a wrong token, signature or keyword, an address that is not allowed, a malformed message.
func robot(answer string, err error, hopeless ...int) (string, error) {
	if err != nil {
		return "", err
	}
	var a struct {
		ErrCode *int   `json:"errcode"` // DingTalk and WeCom
		ErrMsg  string `json:"errmsg"`
		Code    *int   `json:"code"` // Feishu
		Msg     string `json:"msg"`
	}
	if json.Unmarshal([]byte(answer), &a) != nil || (a.ErrCode == nil && a.Code == nil) {
		return "", fmt.Errorf("the response is not that of a chat robot: %s", tidy(answer, maxFieldRunes))
	}
	code, msg := a.ErrCode, a.ErrMsg
	if code == nil {
		code, msg = a.Code, a.Msg
	}
	if *code == 0 {
		return tidy(msg, maxFieldRunes), nil
	}
	err = fmt.Errorf("it refused: %s (code %d)", tidy(msg, maxFieldRunes), *code)
	if slices.Contains(hopeless, *code) {
		return "", &permanentError{err}
	}
	return "", err
}

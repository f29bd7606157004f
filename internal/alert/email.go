package alert

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"
)

// mail sends a message as plain text, so that its content cannot act as markup.
func (s *Sender) mail(ctx context.Context, c *Channel, m Message) (string, error) {
	e := c.Email
	if e == nil {
		return "", &permanentError{errors.New("the channel has no mail settings")}
	}
	said := Render(c, m)
	msg := mail.NewMsg()
	if err := msg.From(e.From); err != nil {
		return "", &permanentError{errors.New("the sender is not an address")}
	}
	if err := msg.To(e.To...); err != nil {
		return "", &permanentError{errors.New("a recipient is not an address")}
	}
	msg.Subject(said.Subject)
	msg.SetDateWithValue(s.Now())
	// All tries to deliver an alert use the same message id, so that receivers can recognize duplicates.
	msg.SetMessageIDWithValue("belfry-alert-" + m.ID + "." + c.Name + "@" + domainOf(e.From))
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader("X-Belfry-Alert-Id", m.ID)
	msg.SetBodyString(mail.TypeTextPlain, said.Text+"\n")

	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLS != nil {
		config = s.TLS.Clone()
	}
	config.ServerName = e.Host
	options := []mail.Option{
		mail.WithPort(e.Port), mail.WithTimeout(s.Timeout), mail.WithTLSConfig(config), mail.WithDialContextFunc(s.dialMail(ctx, e, config)),
	}
	switch e.TLS {
	case StartTLS:
		options = append(options, mail.WithTLSPolicy(mail.TLSMandatory))
	case Implicit:
		options = append(options, mail.WithSSL())
	case NoTLS:
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if e.Username != "" {
		// The library uses the first method in this order that the server supports. It refuses the last two without encryption.
		options = append(options, mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256PLUS, mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthSCRAMSHA1PLUS,
			mail.SMTPAuthSCRAMSHA1, mail.SMTPAuthCramMD5, mail.SMTPAuthPlain, mail.SMTPAuthLogin), mail.WithUsername(e.Username), mail.WithPassword(e.Password))
	}
	client, err := mail.NewClient(e.Host, options...)
	if err != nil {
		return "", &permanentError{fmt.Errorf("the mail settings are not valid: %s", tidy(err.Error(), maxFieldRunes))}
	}
	if err := client.DialAndSendWithContext(ctx, msg); err != nil {
		return "", mailError(ctx, err)
	}
	return "the mail server accepted it", nil
}

// dialMail connects to addresses that the sender allows. The end of the context try closes the connection, because the library
// has a time limit per command but none for all commands together.
func (s *Sender) dialMail(try context.Context, e *Email, config *tls.Config) mail.DialContextFunc {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := s.dialer.DialContext(ctx, network, net.JoinHostPort(e.Host, strconv.Itoa(e.Port)))
		if err != nil {
			return nil, err
		}
		context.AfterFunc(try, func() { conn.Close() })
		if e.TLS != Implicit {
			return conn, nil
		}
		encrypted := tls.Client(conn, config)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return encrypted, nil
	}
}

// mailError distinguishes permanent errors of a mail server, such as an unknown recipient, from transient ones.
func mailError(ctx context.Context, err error) error {
	var forbidden errForbidden
	var refused *mail.SendError
	switch {
	case errors.As(err, &forbidden):
		return &permanentError{forbidden}
	case ctx.Err() != nil:
		return errors.New("the mail server took too long")
	}
	text := fmt.Errorf("the mail was not sent: %s", tidy(err.Error(), 2*maxFieldRunes))
	if errors.As(err, &refused) && refused.ErrorCode() >= 500 && !refused.IsTemp() {
		return &permanentError{text}
	}
	return text
}

func domainOf(address string) string {
	_, d, found := strings.Cut(strings.TrimSuffix(address, ">"), "@")
	if !found || d == "" {
		return "belfry.invalid"
	}
	return d
}

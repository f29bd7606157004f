package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/belfryhq/belfry/internal/alert"
	"github.com/belfryhq/belfry/internal/domain"
)

// AlertChannels lists up to most alert channels, with their secrets masked.
func (c *Client) AlertChannels(ctx context.Context, most int) ([]alert.Channel, error) {
	return list[alert.Channel](ctx, c, "/alert-channels", nil, most)
}

// AlertChannel returns one alert channel, with its secrets masked.
func (c *Client) AlertChannel(ctx context.Context, name string) (alert.Channel, error) {
	return answer[alert.Channel](ctx, c, http.MethodGet, channelPath(name), nil, nil)
}

// CreateAlertChannel creates a channel from any value that encodes to its JSON.
func (c *Client) CreateAlertChannel(ctx context.Context, spec any) (alert.Channel, error) {
	return answer[alert.Channel](ctx, c, http.MethodPost, "/alert-channels", nil, spec)
}

// ReplaceAlertChannel replaces the spec of a channel. It keeps stored secrets that the new spec leaves out.
func (c *Client) ReplaceAlertChannel(ctx context.Context, name string, spec any) (alert.Channel, error) {
	return answer[alert.Channel](ctx, c, http.MethodPut, channelPath(name), nil, spec)
}

// DeleteAlertChannel deletes a channel that no job uses.
func (c *Client) DeleteAlertChannel(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, channelPath(name), nil, nil, nil)
}

// ChannelTest is the result of a test alert.
type ChannelTest struct {
	Delivered bool   `json:"delivered"`
	Detail    string `json:"detail"`
	TookMS    int64  `json:"took_ms"`
}

// TestAlertChannel delivers a test alert to a channel at once.
func (c *Client) TestAlertChannel(ctx context.Context, name string) (ChannelTest, error) {
	return answer[ChannelTest](ctx, c, http.MethodPost, channelPath(name)+"/test", nil, struct{}{})
}

func channelPath(name string) string { return "/alert-channels/" + url.PathEscape(name) }

// Alert is an alert with its delivery to each channel.
type Alert struct {
	alert.Message
	Deliveries []AlertDelivery `json:"deliveries"`
}

// AlertDelivery is the delivery of an alert to one channel.
type AlertDelivery struct {
	Channel   string         `json:"channel"`
	State     string         `json:"state"`
	Tries     int            `json:"tries"`
	Error     string         `json:"error,omitempty"`
	UpdatedAt domain.Instant `json:"updated_at"`
}

// AlertFilter selects alerts; an empty field selects all.
type AlertFilter struct {
	Group string
	JobID domain.JobID
	Kind  string
	State string // the state of a delivery
}

// Alerts lists up to most alerts, newest first.
func (c *Client) Alerts(ctx context.Context, f AlertFilter, most int) ([]Alert, error) {
	q := values("group", f.Group, "kind", f.Kind, "state", f.State)
	if f.JobID != 0 {
		q.Set("job_id", strconv.FormatInt(int64(f.JobID), 10))
	}
	return list[Alert](ctx, c, "/alerts", q, most)
}

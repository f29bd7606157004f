package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/belfryhq/belfry/internal/domain"
)

// Calendars lists up to most calendars by name.
func (c *Client) Calendars(ctx context.Context, most int) ([]domain.Calendar, error) {
	return list[domain.Calendar](ctx, c, "/calendars", nil, most)
}

// Calendar returns one calendar.
func (c *Client) Calendar(ctx context.Context, name string) (domain.Calendar, error) {
	return answer[domain.Calendar](ctx, c, http.MethodGet, calendarPath(name), nil, nil)
}

// CreateCalendar creates a calendar from any value that encodes to its JSON.
func (c *Client) CreateCalendar(ctx context.Context, spec any) (domain.Calendar, error) {
	return answer[domain.Calendar](ctx, c, http.MethodPost, "/calendars", nil, spec)
}

// ReplaceCalendar replaces the spec of a calendar.
func (c *Client) ReplaceCalendar(ctx context.Context, name string, spec any) (domain.Calendar, error) {
	return answer[domain.Calendar](ctx, c, http.MethodPut, calendarPath(name), nil, spec)
}

// DeleteCalendar deletes a calendar that no job uses.
func (c *Client) DeleteCalendar(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, calendarPath(name), nil, nil, nil)
}

func calendarPath(name string) string { return "/calendars/" + url.PathEscape(name) }

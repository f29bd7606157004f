package client

import (
	"context"
	"net/http"
)

// XXLJobGroup says how a group is open for executors of XXL-JOB.
type XXLJobGroup struct {
	Group     string   `json:"group"`
	AppName   string   `json:"app_name"`
	Networks  []string `json:"networks"`
	Capacity  int      `json:"capacity"`
	HasToken  bool     `json:"has_token"`
	Encrypted bool     `json:"encrypted"`
	Token     string   `json:"token,omitempty"` // only if it was generated
	Warnings  []string `json:"warnings"`
}

// OpenXXLJob opens a group for executors of XXL-JOB. Zero fields keep their values; of Token, Generate and WithoutToken, the first call for a group needs one.
type OpenXXLJob struct {
	Token        string   `json:"token,omitempty"`
	Generate     bool     `json:"generate,omitempty"`
	WithoutToken bool     `json:"without_token,omitempty"`
	Networks     []string `json:"networks,omitempty"`
	AppName      string   `json:"app_name,omitempty"`
	Capacity     int      `json:"capacity,omitempty"`
}

// OpenXXLJob opens a group for executors of XXL-JOB, or changes how it is open.
func (c *Client) OpenXXLJob(ctx context.Context, group string, o OpenXXLJob) (out XXLJobGroup, err error) {
	err = c.call(ctx, http.MethodPut, groupPath(group)+"/xxl-job", nil, o, &out)
	return out, err
}

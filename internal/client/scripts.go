package client

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/belfryhq/belfry/internal/domain"
)

// Scripts lists up to most versions of a job's script, newest first, without their code.
func (c *Client) Scripts(ctx context.Context, job domain.JobID, most int) ([]domain.ScriptVersion, error) {
	return list[domain.ScriptVersion](ctx, c, jobPath(job)+"/scripts", nil, most)
}

// Script returns one version of a job's script; with from not 0 also the difference from that version.
func (c *Client) Script(ctx context.Context, job domain.JobID, version, from int) (domain.ScriptVersion, error) {
	query := values()
	if from != 0 {
		query.Set("diff", strconv.Itoa(from))
	}
	return answer[domain.ScriptVersion](ctx, c, http.MethodGet, scriptPath(job, version), query, nil)
}

// SaveScript saves script as the newest version of a job's script, and returns that version.
func (c *Client) SaveScript(ctx context.Context, job domain.JobID, script domain.Script) (domain.ScriptVersion, error) {
	body := map[string]string{"language": script.Language, "code": script.Code, "remark": script.Remark}
	return answer[domain.ScriptVersion](ctx, c, http.MethodPost, jobPath(job)+"/scripts", nil, body)
}

// RestoreScript saves an old version as the newest one, and returns it. If remark is empty, the server sets one.
func (c *Client) RestoreScript(ctx context.Context, job domain.JobID, version int, remark string) (domain.ScriptVersion, error) {
	return answer[domain.ScriptVersion](ctx, c, http.MethodPost, scriptPath(job, version)+"/restore", nil, map[string]string{"remark": remark})
}

func scriptPath(job domain.JobID, version int) string {
	return fmt.Sprintf("%s/scripts/%d", jobPath(job), version)
}
